import functools
import hashlib
import http.server
import logging
import pathlib
import re
import socket
import threading
import time
import zipfile

import numpy as np
import pandas as pd
import pytest

from dualgap.datasets import fetch_movielens, movielens, synthetic_ratings

GENRES = "0|0|0|1|1|1" + "|0" * 13
U_ITEM = (
    f"1|Toy Story (1995)|01-Jan-1995||http://x/?a=b|{GENRES}\n"
    f'2|Misérables, "Les" (1995) (V)|||http://x/|{"0|" * 18}1\n'
    f"3|unknown||||1{'|0' * 18}\n"
)
FORMATS = {
    "u.data": {
        "u.data": "7\t2\t3\t881250949\n5\t1\t4\t881250950\n",
        "u.item": U_ITEM.encode("latin-1"),
        "u.user": "5|24|M|technician|01234\n7|53|F|other|94043\n",
        "u1.base": "7\t2\t3\t881250949\n",
    },
    "ratings.dat": {
        "ratings.dat": "7::2::3::881250949\n5::1::4::881250950\n",
        "movies.dat": "1::Toy Story (1995)::Animation|Children's|Comedy\n"
        '2::Misérables, "Les" (1995)::Western\n3::unknown::unknown\n'.encode("latin-1"),
        "users.dat": "5::M::24::12::01234\n7::F::53::0::94043\n",
    },
    "ratings.csv": {
        "ratings.csv": "userId,movieId,rating,timestamp\n7,2,3.0,881250949\n5,1,4.0,881250950\n",
        "movies.csv": "movieId,title,genres\n1,Toy Story (1995),Animation|Children's|Comedy\n"
        '2,"Misérables, ""Les"" (1995)",Western\n3,unknown,unknown\n',
    },
    "small.inter": {
        "small.inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
        "7\t2\t3\t881250949.0\n5\t1\t4\t881250950.0\n",
        "small.item": "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
        "1\tToy Story\t1995\tAnimation Children's Comedy\n"
        '2\tMisérables, "Les" (1995)\tV\tWestern\n3\tunknown\tunkonwn\tunknown\n',
        "small.user": "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
        "5\t24\tM\ttechnician\t01234\n7\t53\tF\tother\t94043\n",
    },
}


def write_files(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def write_zip(path, files, folder):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{folder}/", "")
        for name, content in files.items():
            archive.writestr(f"{folder}/{name}", content)
    return path.read_bytes()


def no_network(*args):
    raise AssertionError("the network was used")


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Replace the server of GroupLens with a local one; return the folder that it serves."""
    root = write_files(tmp_path / "server", {})
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=root)
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *args: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setattr(movielens, "_GROUPLENS", f"http://127.0.0.1:{httpd.server_port}")
        yield root
        httpd.shutdown()
        thread.join()


# --- Formats ---


@pytest.mark.parametrize("how", ["folder", "file", "zip"])
@pytest.mark.parametrize("kind", FORMATS)
def test_every_movielens_format_is_read(tmp_path, kind, how):
    if how == "zip":
        path = tmp_path / "some.zip"
        write_zip(path, FORMATS[kind], "ml-some")
    else:
        path = write_files(tmp_path, FORMATS[kind])
        path = path / kind if how == "file" else path
    data = fetch_movielens(path)

    assert (data.name, data.source, data.path) == (str(path), "path", path)
    assert str(data) == f"Ratings(name={str(path)!r}, source='path', path={path!r})"
    expected = pd.DataFrame(
        {"user": [7, 5], "item": [2, 1], "rating": [3.0, 4.0], "timestamp": [881250949, 881250950]}
    )
    pd.testing.assert_frame_equal(data.ratings, expected)
    assert list(data.items) == ["item", "title", "year", "genres"]
    assert data.items["item"].tolist() == [1, 2, 3]
    assert data.items["title"].tolist() == ["Toy Story", 'Misérables, "Les"', "unknown"]
    assert data.items["year"].fillna(0).tolist() == [1995, 1995, 0]
    assert data.items["genres"].tolist() == ["Animation|Children's|Comedy", "Western", "unknown"]
    if kind == "ratings.csv":
        assert data.users is None
    else:
        assert data.users["user"].tolist() == [5, 7]
        assert data.users["age"].tolist() == [24, 53]
        assert data.users["zip_code"].tolist() == ["01234", "94043"]


@pytest.mark.parametrize("kind", FORMATS)
def test_tables_of_items_and_users_are_optional(tmp_path, kind):
    data = fetch_movielens(write_files(tmp_path, {kind: FORMATS[kind][kind]}))
    assert len(data.ratings) == 2
    assert data.items is None
    assert data.users is None


def test_ratings_may_be_half_stars_and_ids_may_be_words(tmp_path):
    text = "user_id,item_id,rating,timestamp,note\nann,x,3.5,1,\nbob,y,0.5,2,\n"
    ratings = fetch_movielens(write_files(tmp_path, {"mine.csv": text}) / "mine.csv").ratings
    assert ratings["user"].tolist() == ["ann", "bob"]
    assert ratings["rating"].tolist() == [3.5, 0.5]


@pytest.mark.parametrize(
    ("title", "bare", "year"),
    [
        ("1984", "1984", 0),
        ("2001: A Space Odyssey (1968)", "2001: A Space Odyssey", 1968),
        ("Fawlty Towers (1975-1979)", "Fawlty Towers", 1975),
        ("Death Note (2006\u20132007)", "Death Note", 2006),
        ("Seven (a.k.a. Se7en) (1995) ", "Seven (a.k.a. Se7en)", 1995),
    ],
)
def test_years_are_split_from_titles(tmp_path, title, bare, year):
    movies = f"movieId,title,genres\n1,{title},Drama\n"
    write_files(tmp_path, FORMATS["ratings.csv"] | {"movies.csv": movies})
    items = fetch_movielens(tmp_path).items
    assert items["title"].tolist() == [bare]
    assert items["year"].fillna(0).tolist() == [year]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("u.data", "", "u.data: No columns"),
        ("u.data", "1\t2\t3\n", "u.data has 3 columns"),
        ("u.data", "1\t2\tgood\t4\n", "u.data: row 1: the rating 'good' is not a finite number"),
        ("u.data", "1\t2\t\t4\n1\t2\t3\t4\n", "u.data: the file has empty fields"),
        ("u.data", "1\t2\t3\t4\n1\t2\t3\t4\t5\n", "u.data: Error tokenizing"),
        ("ratings.csv", "userId,movieId,timestamp\n1,2,3\n", r"missing columns \['rating'\]"),
        ("ratings.csv", "userId,movieId,rating,timestamp\n", "contains no ratings"),
        ("ratings.txt", "1 2 3 4", "ratings.txt must end in .data, .dat, .csv or .inter"),
    ],
)
def test_errors_name_the_malformed_file(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        fetch_movielens(write_files(tmp_path, {name: text}) / name)


def test_paths_without_one_ratings_file_are_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"not a known data set \(known: '100k', '1m'"):
        fetch_movielens(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"none of the files u\.data, ratings\.dat"):
        fetch_movielens(tmp_path)
    write_files(tmp_path, {"a.inter": "", "b.inter": ""})
    with pytest.raises(ValueError, match=r"several \*\.inter files"):
        fetch_movielens(tmp_path)


# --- Sources ---


def test_a_downloaded_file_is_cached(tmp_path, server, monkeypatch, caplog):
    data = write_zip(server / "ml-latest-small.zip", FORMATS["ratings.csv"], "ml-latest-small")
    digest = hashlib.md5(data).hexdigest()
    write_files(server, {"ml-latest-small.zip.md5": f"{digest}  ml-latest-small.zip\n"})
    home = tmp_path / "deep" / "home"
    first = fetch_movielens("latest-small", data_home=home)
    assert (first.source, first.path) == ("download", home / "ml-latest-small.zip")

    monkeypatch.setattr(movielens, "urlopen", no_network)
    for source in ("auto", "cache", "download"):
        again = fetch_movielens("latest-small", source=source, data_home=home)
        assert again.source == "cache"
        pd.testing.assert_frame_equal(again.ratings, first.ratings)
    assert [file.name for file in home.iterdir()] == ["ml-latest-small.zip"]
    assert not caplog.records


def test_a_file_without_a_published_checksum_is_accepted(tmp_path, server):
    write_zip(server / "ml-latest-small.zip", FORMATS["ratings.csv"], "ml-latest-small")
    assert fetch_movielens("latest-small", data_home=tmp_path / "home").source == "download"


@pytest.mark.parametrize("name", ["100k", "1m", "latest-small"])
def test_a_download_with_a_wrong_checksum_is_rejected(tmp_path, server, name):
    write_zip(server / f"ml-{name}.zip", FORMATS["ratings.csv"], "ml")
    write_files(server, {"ml-latest-small.zip.md5": f"MD5 (ml-latest-small.zip) = {'0' * 32}"})
    with pytest.raises(ValueError, match=rf"ml-{name}\.zip: wrong md5 checksum"):
        fetch_movielens(name, data_home=tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_a_cached_file_with_a_wrong_checksum_is_rejected(tmp_path):
    write_zip(tmp_path / "ml-1m.zip", FORMATS["ratings.dat"], "ml-1m")
    with pytest.raises(ValueError, match=r"wrong md5 checksum.*delete it"):
        fetch_movielens("1m", data_home=tmp_path)


def test_a_wheel_with_a_wrong_checksum_is_rejected(tmp_path, monkeypatch):
    wheel = tmp_path / "some.whl"
    files = dict.fromkeys(movielens._WHEEL_SHA256, "changed")
    write_zip(wheel, files, movielens._WHEEL_FOLDER.rstrip("/"))
    monkeypatch.setattr(movielens, "_from_pip", lambda timeout: wheel.read_bytes())
    home = tmp_path / "home"
    with pytest.raises(ValueError, match=r"ml-100k\.inter: wrong sha256 checksum .* 4edb74e2"):
        fetch_movielens("100k", source="recbole", data_home=home)
    write_zip(wheel, {}, "recbole")
    with pytest.raises(ValueError, match="not the expected wheel"):
        fetch_movielens("100k", source="recbole", data_home=home)
    assert not home.exists()


def test_each_unreachable_source_is_skipped_with_one_log_line(tmp_path, monkeypatch, caplog):
    def unreachable(url, timeout):
        raise OSError("Name or service\nnot known")

    def no_pip(timeout):
        raise TimeoutError("pip did not finish")

    monkeypatch.setattr(movielens, "urlopen", unreachable)
    monkeypatch.setattr(movielens, "_from_pip", no_pip)
    message = r"no source of MovieLens 100k is available \(download: .*not known; recbole: pip did"
    with pytest.raises(OSError, match=message):
        fetch_movielens("100k", data_home=tmp_path)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[1] for line in lines] == [" skipped download", " skipped recbole"]
    assert not any("\n" in line for line in lines)
    assert {(r.name, r.levelno) for r in caplog.records} == {("dualgap", logging.WARNING)}


def test_a_server_that_does_not_answer_is_skipped_quickly(tmp_path, monkeypatch, caplog):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setattr(movielens, "_GROUPLENS", f"http://127.0.0.1:{port}")
        start = time.monotonic()
        with pytest.raises(OSError, match="no source of MovieLens 1m is available"):
            fetch_movielens("1m", data_home=tmp_path, timeout=0.2)
        assert time.monotonic() - start < 2.0
    assert len(caplog.records) == 1


def test_a_hanging_name_lookup_is_skipped_quickly(tmp_path, monkeypatch):
    release = threading.Event()

    def hang(url, timeout):
        release.wait(30)
        raise OSError("too late")

    monkeypatch.setattr(movielens, "urlopen", hang)
    start = time.monotonic()
    with pytest.raises(OSError, match=r"did not answer in 0\.1 s"):
        fetch_movielens("1m", data_home=tmp_path, timeout=0.1)
    assert time.monotonic() - start < 2.0
    release.set()


def test_a_source_that_returns_a_web_page_is_skipped(tmp_path, server, caplog):
    write_files(server, {"ml-1m.zip": "<html>Log in first</html>"})
    with pytest.raises(OSError, match="did not return a zip file"):
        fetch_movielens("1m", data_home=tmp_path / "home")
    assert len(caplog.records) == 1


def test_an_error_of_pip_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(movielens.sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(OSError, match=r"recbole: .*no-python"):
        fetch_movielens("100k", source="recbole", data_home=tmp_path)


def test_movielens_100k_can_be_fetched_from_the_package_index(tmp_path, monkeypatch):
    try:
        first = fetch_movielens("100k", source="recbole", data_home=tmp_path)
    except OSError as error:
        pytest.skip(f"the package index does not answer: {error}")
    assert first.source == "recbole"
    assert first.ratings.shape == (100_000, 4)
    assert first.ratings.nunique()[["user", "item", "rating"]].tolist() == [943, 1682, 5]
    assert first.ratings.iloc[0].tolist() == [196, 242, 3, 881250949]
    assert first.items.shape == (1682, 4)
    assert first.items.iloc[0].tolist() == [1, "Toy Story", 1995, "Animation|Children's|Comedy"]
    assert first.items["year"].isna().sum() == 1
    assert first.users.shape == (943, 5)
    monkeypatch.setattr(movielens, "_from_pip", no_network)
    monkeypatch.setattr(movielens, "urlopen", no_network)
    again = fetch_movielens(data_home=tmp_path)
    assert again.source == "cache"
    pd.testing.assert_frame_equal(again.ratings, first.ratings)


def test_environment_variables_set_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("DUALGAP_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=re.escape(f"in {tmp_path / 'dualgap'}")):
        fetch_movielens("1m", source="cache")
    monkeypatch.setenv("DUALGAP_HOME", str(tmp_path / "mine"))
    with pytest.raises(FileNotFoundError, match=re.escape(f"in {tmp_path / 'mine'}")):
        fetch_movielens("1m", source="cache")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "ftp"}, "source must be"),
        ({"name": "1m", "source": "recbole"}, "source='recbole' does not provide '1m'"),
        ({"name": "folder", "source": "cache"}, "name must be one of"),
        ({"timeout": 0}, "timeout must be positive"),
    ],
)
def test_errors_of_fetch_movielens_name_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        fetch_movielens(**arguments)


# --- Synthetic ratings ---


def test_synthetic_ratings_are_reproducible_and_in_range():
    ratings = synthetic_ratings(20_000, 500, 800)
    assert list(ratings) == ["user", "item", "rating", "timestamp"]
    assert len(ratings) == 20_000
    assert not ratings.duplicated(["user", "item"]).any()
    assert ratings["user"].between(0, 499).all()
    assert ratings["item"].between(0, 799).all()
    assert sorted(ratings["rating"].unique()) == [1, 2, 3, 4, 5]
    counts = ratings["item"].value_counts()
    assert counts.iloc[:80].sum() > 0.2 * len(ratings)
    pd.testing.assert_frame_equal(ratings, synthetic_ratings(20_000, 500, 800))
    assert not ratings.equals(synthetic_ratings(20_000, 500, 800, random_state=1))


def test_synthetic_ratings_can_include_every_pair():
    ratings = synthetic_ratings(600, 20, 30, rank=0, random_state=np.random.default_rng(0))
    assert not ratings.duplicated(["user", "item"]).any()
    assert len(ratings) == 600


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((7, 2, 3), "n_ratings must be at most"),
        ((0, 2, 3), "n_ratings must be at least 1"),
        ((1, 0, 3), "n_users must be at least 1"),
        ((1, 2, 3, -1), "rank must be at least 0"),
    ],
)
def test_errors_of_synthetic_ratings_name_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        synthetic_ratings(*arguments)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ratings.csv", "userId,movieId,rating,timestamp\n{0},07,3.0,1\n{0},7,4.0,2\n"),
        ("r.csv", "user,item,rating\n{0},07,3.0\n{0},7,4.0\n"),
        ("u.data", "{0}\t07\t3\t1\n{0}\t7\t4\t2\n"),
        ("r.inter", "user_id:token\titem_id:token\trating:float\n{0}\t07\t3\n{0}\t7\t4\n"),
    ],
)
def test_ids_with_leading_zeros_stay_distinct(tmp_path: pathlib.Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text.format(12))
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n07,A,B\n7,C,B\n")
    found = fetch_movielens(tmp_path / name)
    assert found.ratings["item"].tolist() == ["07", "7"]
    assert found.ratings["user"].tolist() == [12, 12]
    if name.endswith(".csv"):
        assert found.items is not None
        assert found.items["item"].tolist() == ["07", "7"]
