"""Files with a token on each line."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from dualgap.sequence import SequenceTagger, read_conll

TEXT = "the DT B-NP\ncat NN I-NP\n\nruns VB O\n"
SENTENCES = [[("the", "DT", "B-NP"), ("cat", "NN", "I-NP")], [("runs", "VB", "O")]]


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.replace("\n", "\r\n").encode(),
        ("-DOCSTART- -X- O\n\n\n" + TEXT.replace("\n\n", "\n-DOCSTART- -X- O\n")).encode(),
        ("-DOCSTART-\n \t\n" + TEXT.replace(" ", " \t ").replace("\n", " \n").rstrip()).encode(),
    ],
)
def test_variants_of_a_file_hold_the_same_sentences(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    path.write_bytes(content)
    file, text = io.BytesIO(content), io.StringIO(content.decode(), newline="")
    for source in (path, str(path), file, text):
        assert list(read_conll(source)) == SENTENCES
    assert not file.closed
    assert not text.closed


def test_column_names_are_rejected() -> None:
    with pytest.raises(TypeError, match=r"columns: must be column indices, .*'word'"):
        read_conll(io.StringIO("the DT"), columns=["word"])  # type: ignore[list-item]


def test_columns_are_selected(tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    path.write_text(TEXT)
    assert list(read_conll(path, columns=0)) == [["the", "cat"], ["runs"]]
    assert list(read_conll(path, columns=[-1, 0])) == [
        [("B-NP", "the"), ("I-NP", "cat")],
        [("O", "runs")],
    ]
    tagger = SequenceTagger(features="words", C=10.0)
    tagger.fit(read_conll(path, columns=[0, 1]), read_conll(path, columns=-1))
    assert tagger.predict(read_conll(path, columns=[0, 1])) == [["B-NP", "I-NP"], ["O"]]


def test_separators_and_encodings_can_be_chosen() -> None:
    # No-break spaces, ideographic spaces and line separators do not separate columns.
    odd = "10\xa0000 CD O\na\u3000b NN O\nc\u2028d NN O\n"
    found = list(read_conll(io.BytesIO(odd.encode()), columns=0))
    assert found == [["10\xa0000", "a\u3000b", "c\u2028d"]]
    tabs = "New York\t\tB-LOC\nis\tVB\tO\n"
    expected = [[("New York", "", "B-LOC"), ("is", "VB", "O")]]
    assert list(read_conll(io.StringIO(tabs), separator="\t")) == expected
    for encoding in ("latin-1", "utf-16"):
        file = io.BytesIO("señor O\n".encode(encoding))
        assert list(read_conll(file, 0, encoding=encoding)) == [["señor"]]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"a b\nc\n", {}, r"tokens\.txt: line 2 has 1 columns, but earlier lines have 2"),
        (
            b"\na b\n",
            {"columns": 2},
            r"tokens\.txt: columns: line 2 has 2 columns, so there is no column 2",
        ),
        (b"a b\n", {"columns": [0, -3]}, "no column -3"),
        (b"se\xf1or O\n", {}, r"tokens\.txt: not utf-8 .*; set the encoding"),
        (b"a b\n", {"separator": ""}, "^separator: must be a single character"),
    ],
)
def test_errors_name_the_file_and_the_line(
    content: bytes, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "tokens.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(read_conll(tmp_path / "tokens.txt", **options))


def test_sentences_are_read_on_demand() -> None:
    class Endless(io.StringIO):
        def __next__(self) -> str:
            self.lines = getattr(self, "lines", 0) + 1
            assert self.lines < 10
            return "a b\n" if self.lines % 2 else "\n"

    sentences = read_conll(Endless())
    assert [next(sentences) for _ in range(3)] == [[("a", "b")]] * 3
