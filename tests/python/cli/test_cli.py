"""Tests of the command `dualgap recommend` on small files."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import dualgap
import dualgap.cli.recommend
from dualgap import OrdinalRecommender
from dualgap.cli import main
from dualgap.cli._ratings_file import FileColumns, read_ratings_file
from dualgap.datasets import fetch_movielens, synthetic_ratings
from dualgap.recommend.comparison import split_ratings


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of ratings without titles."""
    folder = tmp_path_factory.mktemp("ratings")
    table = synthetic_ratings(1500, 80, 40, rank=2)
    table.columns = ["userId", "movieId", "rating", "timestamp"]
    table.to_csv(folder / "ratings.csv", index=False)
    return folder / "ratings.csv"


@pytest.fixture
def titled(data: Path, tmp_path: Path) -> Path:
    """The ratings of `data`, with titles and a folder name that look like markup."""
    folder = tmp_path / "a [bold] [x"
    folder.mkdir()
    (folder / "ratings.csv").write_bytes(data.read_bytes())
    titles = pd.DataFrame({"movieId": range(40), "genres": "Drama"})
    titles.insert(1, "title", [f"[rec] {n} (19{n + 20})" for n in range(40)])
    titles.to_csv(folder / "movies.csv", index=False)
    return folder / "ratings.csv"


@pytest.fixture(autouse=True)
def logger_level() -> Iterator[None]:
    logger = logging.getLogger("dualgap")
    level = logger.level
    yield
    logger.setLevel(level)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["recommend", *map(str, arguments)])


def run_successfully(*arguments: object) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def recommend_directly(data: Path, users: list[Any], n: int) -> pd.DataFrame:
    model = OrdinalRecommender(random_state=0).fit(fetch_movielens(data).ratings)
    return model.recommend(users, n)


def test_csv_output_equals_the_recommendations_in_python(data: Path) -> None:
    result = run_successfully(
        "--data", data, "--user", 3, "--user", 5, "--top", 4, "--output", "csv"
    )
    table = pd.read_csv(StringIO(result.stdout))
    pd.testing.assert_frame_equal(table, recommend_directly(data, [3, 5], 4), atol=1e-9)
    assert result.stderr.endswith(f"{data}: 1500 ratings of 40 items by 80 users (from path)\n")


def test_json_output_has_ranks_scores_and_titles(titled: Path) -> None:
    result = run_successfully(
        "--data", titled, "--user", 3, "--top", 4, "--output", "json", "--quiet"
    )
    # The command does not change the log level of later calls in this process.
    assert logging.getLogger("dualgap").level == logging.NOTSET
    assert result.stderr == ""
    records = json.loads(result.stdout)
    table = recommend_directly(titled, [3], 4)
    assert [record["item"] for record in records] == table["item"].tolist()
    assert [record["rank"] for record in records] == [1, 2, 3, 4]
    for record in records:
        assert record["user"] == 3
        assert record["title"] == f"[rec] {record['item']} (19{record['item'] + 20})"
    np.testing.assert_allclose([record["score"] for record in records], table["score"], atol=1e-9)


def test_the_printed_table_has_titles_and_scores(titled: Path) -> None:
    result = run_successfully("--data", titled.parent, "--user", 3, "--user", 7, "--top", 5)
    header, *lines = result.stdout.splitlines()
    assert header.split() == ["user", "rank", "item", "title", "score"]
    table = recommend_directly(titled, [3, 7], 5)
    assert len(lines) == len(table) == 10
    for line, row in zip(lines, table.itertuples(), strict=True):
        title = f"[rec] {row.item} (19{row.item + 20})"
        assert line.split(maxsplit=3)[:3] == [str(row.user), str(row.rank), str(row.item)]
        assert title in line
        assert line.split()[-1] == f"{row.score:.3f}"


def test_data_may_be_a_folder_with_a_ratings_file(titled: Path) -> None:
    arguments = ["--user", 3, "--output", "csv"]
    assert (
        run_successfully("--data", titled.parent, *arguments).stdout
        == run_successfully("--data", titled, *arguments).stdout
    )


@pytest.mark.parametrize("user", ["99999", "bob", "-4", "²", "1.5", "[/x]"])
def test_a_mistyped_user_is_an_error(data: Path, user: str) -> None:
    result = run("--data", data, "--user", 3, "--user", user, "--quiet")
    assert result.exit_code == 1
    assert result.stdout == ""
    shown = repr(int(user) if user.lstrip("-").isdecimal() and user != "²" else user)
    assert result.stderr == f"error: --user: {shown} is not one of the 80 users in the ratings\n"


def test_negative_ids_are_numbers(tmp_path: Path) -> None:
    table = synthetic_ratings(300, 30, 10)[["user", "item", "rating"]]
    table = table.assign(user=table["user"] - 15, timestamp=0)
    table.columns = ["userId", "movieId", "rating", "timestamp"]
    table.to_csv(tmp_path / "ratings.csv", index=False)
    user = int(table["userId"].min())
    assert user < 0
    seen = set(table.loc[table["userId"] == user, "movieId"])
    result = run_successfully("--data", tmp_path, "--user", user, "--output", "json")
    assert not seen & {record["item"] for record in json.loads(result.stdout)}
    assert seen


def test_a_saved_model_gives_the_same_recommendations(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "[/x] model"
    arguments = ["--data", data, "--user", 3, "--user", 4, "--output", "csv"]
    saved = run_successfully(*arguments, "--save", path)
    assert f"model written to {path}" in saved.stderr
    loaded = run_successfully(*arguments, "--load", path)
    assert loaded.stdout == saved.stdout
    assert len(saved.stdout.splitlines()) == 21
    model = OrdinalRecommender.load(path)
    assert model.callback is None
    assert len(model.item_ids_) == 40
    # Without a file of items, there are no titles, especially no titles of MovieLens.
    alone = run_successfully("--load", path, "--user", 3, "--user", 4, "--output", "csv")
    assert alone.stdout == saved.stdout
    assert alone.stderr == ""


def test_recommendations_after_an_evaluation_use_all_ratings(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    words = ["--data", data, "--evaluate", "--user", 3, "--top", 4, "--output", "csv"]
    result = run_successfully(*words, "--save", path)
    table = pd.read_csv(StringIO(result.stdout))
    pd.testing.assert_frame_equal(table, recommend_directly(data, [3], 4), atol=1e-5)
    everything = fetch_movielens(data).ratings
    assert OrdinalRecommender.load(path)._fitted.seen.matrix.nnz == len(everything)


def test_options_name_columns_or_give_their_positions(data: Path, tmp_path: Path) -> None:
    table = fetch_movielens(data).ratings
    dates = pd.to_datetime(table["timestamp"], unit="s", utc=True).dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    named = pd.DataFrame(
        {"when": dates, "who": table["user"], "what": table["item"], "stars": table["rating"]}
    )
    columns = ["--user-column", "who", "--item-column", "what", "--timestamp-column", "when"]
    columns += ["--rating-column", "stars"]
    user = ["--user", 3, "--output", "csv", "--top", 4]
    usual = run_successfully("--data", data, *user).stdout
    named.to_csv(tmp_path / "table.csv", index=False)
    assert run_successfully("--data", tmp_path / "table.csv", *columns, *user).stdout == usual
    named.drop(columns="when").to_parquet(tmp_path / "table.parquet")
    assert run_successfully("--data", tmp_path / "table.parquet", *columns, *user).stdout == usual
    named.to_csv(tmp_path / "bare.tsv", index=False, header=False, sep="\t")
    places = ["--no-header", "--user-column", 2, "--item-column", 3, "--rating-column", 4]
    places += ["--timestamp-column", 1]
    assert run_successfully("--data", tmp_path / "bare.tsv", *places, *user).stdout == usual
    missing = run("--data", tmp_path / "table.csv", "--user-column", "nobody")
    assert missing.exit_code == 1
    assert "no user column found; name it with --user-column" in missing.stderr


def read_other_names(path: Path) -> Any:
    return read_ratings_file(path, FileColumns(), likes=False)


@pytest.mark.parametrize(
    ("names", "read"),
    [("user,item,rating,timestamp", fetch_movielens), ("user,item,stars,date", read_other_names)],
)
def test_ratings_files_may_have_dates(names: str, read: Any, tmp_path: Path) -> None:
    path, table = tmp_path / "ratings.csv", synthetic_ratings(60, 8, 8)
    seconds = np.arange(60) * 43_200.5

    def write(**columns: Any) -> None:
        table.assign(**columns).set_axis(names.split(","), axis=1).to_csv(path, index=False)

    for times in (seconds, pd.to_datetime(seconds, unit="s").strftime("%Y-%m-%d %H:%M:%S.%f")):
        write(timestamp=times)
        np.testing.assert_array_equal(read(path).ratings["timestamp"], seconds)
    text = pd.Series(["881250949"] * 60)
    text[4] = "x"
    for column in ("rating", "timestamp"):
        write(**{column: text})
        error = rf"ratings.csv: row 5: the {column} 'x' is not a finite number"
        with pytest.raises(ValueError, match=error):
            read(path)
    write(timestamp=text.where(text == "x", "2020-01-01"))
    with pytest.raises(ValueError, match="row 5: the timestamp 'x' is neither a number nor a date"):
        read(path)


def test_likes_are_fitted_from_pairs_without_ratings(data: Path, tmp_path: Path) -> None:
    table = fetch_movielens(data).ratings[["user", "item"]]
    table.to_csv(tmp_path / "likes.csv", index=False)
    result = run_successfully(
        "--data", tmp_path / "likes.csv", "--likes", "--user", 3, "--output", "csv"
    )
    found = pd.read_csv(StringIO(result.stdout))
    model = OrdinalRecommender(task="clicks", random_state=0)
    model.fit((table["user"], table["item"], np.ones(len(table))))
    pd.testing.assert_frame_equal(found, model.recommend(3), atol=1e-5)


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
@pytest.mark.parametrize("history", [False, True])
def test_evaluate_prints_metrics_of_held_out_ratings(
    data: Path, quiet: list[str], history: bool
) -> None:
    option = ["--history"] if history else []
    result = run_successfully("--data", data, "--evaluate", "--seed", 2, *option, *quiet)
    assert result.stdout == ""
    *notes, line = result.stderr.splitlines()
    train, _, test = split_ratings(fetch_movielens(data).ratings, 2)
    model = OrdinalRecommender(history_features=history, random_state=2).fit(train)
    metrics = "  ".join(
        f"{name} {value:.4f}" for name, value in model.evaluate(test, unknown="ignore").items()
    )
    assert line == f"held-out ratings: {metrics}"
    split = "750 ratings to train on, 375 to validate, 375 to test"
    assert (notes == []) if quiet else (notes[-1] == split)


def test_compare_prints_and_plots_scores_of_all_methods(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "new" / "curves.png"
    result = run_successfully("--data", data, "--compare", "--plot", picture, "--user", 3)
    header, *lines = result.stdout.splitlines()
    metrics = ["RMSE", "nDCG@1", "nDCG@5", "recall@10", "nDCG@10"]
    assert header.split() == [*metrics, "seconds", "bases"]
    names = [line[:44].strip() for line in lines[:11]]
    assert names[:5] == ["global mean", "biases", "popularity", "EASE", "ALS"]
    assert [name.split()[-1] for name in names[5:8]] == ["l1", "l1/l2", "l1/linf"]
    cells = [line[44:].split()[:5] for line in lines[:11]]
    scores = np.array([[np.nan if cell == "-" else float(cell) for cell in row] for row in cells])
    assert np.isfinite(scores[5:]).all()
    assert np.isnan(scores[2:5, :3]).all()
    assert np.isnan(scores[:2, 3:]).all()
    assert (scores[np.isfinite(scores)] > 0.0).all()
    assert np.nanmax(scores[:, 1:]) <= 1.0
    assert scores[names.index("McRank FM, variational"), 0] < scores[0, 0]
    assert lines[11].split() == ["user", "rank", "item", "score"]
    assert f"plot written to {picture}" in result.stderr
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")


def test_a_plot_without_matplotlib_is_an_error(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dualgap.cli.recommend, "find_spec", lambda _name: None)
    result = run("--data", data, "--compare", "--plot", tmp_path / "x.png")
    assert result.exit_code == 2
    assert "--plot requires matplotlib: pip install" in result.stderr


def test_missing_data_give_a_one_line_error(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path / "[/x]", tmp_path):
        result = run("--data", path)
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit)
        assert result.stdout == ""
        assert result.stderr.startswith(f"error: {path}")
        assert result.stderr.count("\n") == 1


def test_ratings_that_are_all_equal_are_an_error(tmp_path: Path) -> None:
    table = synthetic_ratings(50, 10, 10).assign(rating=3.0)
    table.columns = ["userId", "movieId", "rating", "timestamp"]
    table.to_csv(tmp_path / "ratings.csv", index=False)
    result = run("--data", tmp_path, "--quiet")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: ratings: all ratings are 3.0, which says nothing about preferences; for clicks "
        'or purchases, use task="clicks"\n'
    )


def test_loading_a_file_that_is_not_a_model_is_an_error(data: Path) -> None:
    result = run("--data", data, "--load", data, "--quiet")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {data}: not a saved OrdinalRecommender")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--top", "0"], "'--top': 0 is not in the range"),
        (["--output", "xml"], "'--output': 'xml' is not one of"),
        (["--plot", "x.png"], "--plot requires --compare"),
        (["--load", "{data}", "--compare"], "--load cannot be combined"),
        (["--load", "{data}", "--save", "x"], "--load cannot be combined"),
        (["--load", "{data}", "--evaluate"], "--load cannot be combined with --evaluate"),
        (["--likes", "--compare"], "--likes cannot be combined"),
        (["--load", "{data}.missing"], "does not exist"),
        (["--strange"], "No such option"),
        (["--seed", "x"], "'x' is not a valid integer"),
    ],
)
def test_usage_errors_name_the_option(data: Path, arguments: list[str], message: str) -> None:
    words = [word.replace("{data}", str(data)) for word in arguments]
    result = run("--data", data, *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_an_interrupted_command_exits_with_status_130(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(OrdinalRecommender, "fit", interrupt)
    result = run("--data", data)
    assert result.exit_code == 130
    assert result.stderr.endswith("interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a process")
def test_sigint_during_a_fit_ends_the_command(tmp_path: Path) -> None:
    table = synthetic_ratings(50_000, 2000, 1000)
    table.columns = ["userId", "movieId", "rating", "timestamp"]
    table.to_csv(tmp_path / "ratings.csv", index=False)
    # The number of sweeps is so large that only the signal ends the fit.
    code = (
        "import dualgap.cli.recommend as cli, dualgap.cli, functools as f; "
        "cli.Variational = f.partial(cli.Variational, max_iter=100_000, tol=0.0); "
        "dualgap.cli.main()"
    )
    command = [sys.executable, "-c", code, "recommend", "--data", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert "50000 ratings" in process.stderr.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=0.5)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=3.0) == 130
            assert process.stderr.read() == "interrupted\n"
        finally:
            process.kill()


def test_help_and_version_are_printed() -> None:
    for word in ("-h", "--help"):
        result = run_successfully(word)
        assert "--data" in result.stdout
        assert "Exit status: 0 on success" in result.stdout
    result = CliRunner().invoke(main, ["--version"])
    assert dualgap.__version__ in result.stdout


def test_time_features_reduce_the_error_if_tastes_drift(data: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.read_csv(data)
    visit = rng.integers(3, size=len(table))
    mood = rng.normal(0.0, 1.5, (80, 3))[table["userId"], visit]
    table["rating"] = np.clip(np.rint(table["rating"] + mood), 1.0, 5.0)
    table["timestamp"] = 1e9 + 1e5 * visit
    drifting = tmp_path / "ratings.csv"
    table.to_csv(drifting, index=False)
    errors = []
    for extra in ([], ["--time-features"]):
        printed = run_successfully("--data", drifting, "--evaluate", "--quiet", *extra).stderr
        errors.append(float(printed.split("rmse ")[1].split()[0]))
    assert errors[1] < 0.99 * errors[0]
    timeless = tmp_path / "timeless.csv"
    table.drop(columns="timestamp").to_csv(timeless, index=False)
    columns = ["--user-column", "userId", "--item-column", "movieId"]
    result = run("--data", timeless, *columns, "--time-features")
    assert result.exit_code == 1
    assert "time_features needs the times" in result.output
    # MovieLens column names need no options, and times are optional.
    assert run_successfully("--data", timeless, "--quiet", "--user", "1", "--output", "csv").stdout
    assert run("--data", drifting, "--likes", "--time-features").exit_code == 2


@pytest.mark.parametrize("header", [True, False])
def test_ids_that_differ_in_leading_zeros_stay_distinct(
    data: Path, tmp_path: Path, header: bool
) -> None:
    table = fetch_movielens(data).ratings.astype({"item": str})
    item = table["item"].iloc[0]
    table.loc[table.index[table["item"] == item][::2], "item"] = f"0{item}"
    table.to_csv(tmp_path / "zeros.csv", index=False, header=header)
    columns = FileColumns(header=header)
    found = read_ratings_file(tmp_path / "zeros.csv", columns, likes=False).ratings
    assert found["item"].tolist() == table["item"].tolist()
    assert {item, f"0{item}"} <= set(found["item"])
    assert found["user"].tolist() == table["user"].tolist()
