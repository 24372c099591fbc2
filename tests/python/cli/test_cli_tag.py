"""The commands `dualgap tag train` and `dualgap tag predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dualgap.cli import main
from dualgap.sequence import SequenceTagger
from dualgap.sequence.templates import Templates

TEMPLATES = """# words and their neighbours
U00:%x[-1,0]
U01:%x[0,0]
U02:%x[0,0]/%x[1,1]

B
"""
SENTENCES = """the D B-NP
cat N I-NP
sees V O

dogs N B-NP
see V O
a D B-NP
cat N I-NP
"""


def run(*arguments: object, **options: str) -> Result:
    return CliRunner().invoke(main, ["tag", *map(str, arguments)], **options)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "template").write_text(TEMPLATES)
    (tmp_path / "train.txt").write_text(5 * (SENTENCES + "\n"))
    return tmp_path


def train_on(files: Path, *options: object) -> Result:
    paths = [files / name for name in ("train.txt", "model.npz")]
    return run("train", "-q", "-c", 10, "-t", files / "template", *options, *paths)


@pytest.mark.parametrize("options", [(), ("--loss", "logistic", "--transitions", "bio")])
def test_a_trained_model_labels_a_file(files: Path, options: tuple[str, ...]) -> None:
    result = train_on(files, *options)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("objective ")
    model = files / "model.npz"
    result = run("predict", files / "train.txt", model, files / "out.txt", "--evaluate")
    assert result.exit_code == 0, result.output
    assert "accuracy 1.0000 of 35 tokens" in result.stderr
    lines = (files / "out.txt").read_text().splitlines()
    assert lines[:4] == ["the\tD\tB-NP\tB-NP", "cat\tN\tI-NP\tI-NP", "sees\tV\tO\tO", ""]
    plain = "\n".join(" ".join(line.split()[:2]) for line in SENTENCES.splitlines())
    result = run("predict", "-", model, input=plain)
    assert [line.split()[2:] for line in result.stdout.splitlines()][:3] == [
        ["B-NP"],
        ["I-NP"],
        ["O"],
    ]


def test_templates_that_start_with_b_give_transition_features(files: Path) -> None:
    (files / "template").write_text("U:%x[0,0]\nB1:%x[0,1]\n")
    assert train_on(files).exit_code == 0
    model = SequenceTagger.load(files / "model.npz")
    assert model.features == ["U:%x[0,0]", "B1:%x[0,1]"]
    names = model.feature_names_ or []
    assert {"B1:D", "B1:N", "B1:V"} <= set(names)
    assert model.emission_.shape[0] == len([name for name in names if name.startswith("U")])


def test_templates_expand_to_markers_beyond_the_ends_of_a_sentence() -> None:
    templates = Templates.parse(["U1:%x[-2,0]", "U2:%x[1,1]|%x[2,0]"])
    assert templates.n_columns == 2
    assert templates.expand([["a", "b"], ["c", "d"]]) == [
        ["U1:_B-2", "U2:d|_B+1"],
        ["U1:_B-1", "U2:_B+1|_B+2"],
    ]


def test_errors_of_bad_input_name_the_cause(files: Path) -> None:
    cases = [
        ("template", "X01:%x[0,0]\n", "template: line 1: 'X01"),
        ("template", "U01:%x[0]\n", "template: line 1"),
        ("template", "U01:%x[0,5]\n", "the templates need 6 columns, got 2"),
        ("train.txt", "a b c\nd e\n", "train.txt: line 2 has 2 columns"),
        ("train.txt", "a\nb\n", "tokens must have at least two columns"),
        ("train.txt", "", "there must be at least one sentence"),
    ]
    for name, text, message in cases:
        kept = (files / name).read_text()
        (files / name).write_text(text)
        result = train_on(files)
        assert result.exit_code == 1
        assert message in result.stderr.replace("\n", " "), result.stderr
        (files / name).write_text(kept)
    SequenceTagger(C=1.0).fit([[["a"]], [["b"]]], [["x"], ["y"]]).save(files / "other.npz")
    result = run("predict", files / "train.txt", files / "other.npz")
    assert result.exit_code == 1
    assert "not a model of tokens" in result.stderr


def test_crf_is_another_name_for_the_logistic_loss(files: Path) -> None:
    assert run("train", "-q", "--loss", "crf", files / "train.txt", files / "crf").exit_code == 0
    assert SequenceTagger.load(files / "crf").loss == "logistic"


def test_raw_tokens_are_tagged_without_templates(files: Path) -> None:
    paths = [files / name for name in ("train.txt", "model.npz")]
    assert run("train", "-q", "-c", 10, *paths).exit_code == 0
    model = files / "model.npz"
    assert SequenceTagger.load(model).features == "words"
    # The true labels in the last column must not be used as features.
    result = run("predict", files / "train.txt", model, "--evaluate")
    assert "accuracy 1.0000 of 35 tokens" in result.stderr
    plain = "the D\ncat N\n"
    assert run("predict", "-", model, input=plain).stdout == "the\tD\tB-NP\ncat\tN\tI-NP\n\n"
    result = run("predict", "-", model, input="the\n")
    assert "tokens must have 2 columns, as in training, got 1" in result.stderr
    words = "".join(
        f"{line.split()[0]} {line.split()[2]}\n" if line else "\n"
        for line in (5 * (SENTENCES + "\n")).splitlines()
    )
    (files / "train.txt").write_text(words)
    assert run("train", "-q", "-c", 10, *paths).exit_code == 0
    result = run("predict", "--lines", "-", model, input="the cat sees\n\ndogs see\n")
    assert result.stdout == "the\tB-NP\ncat\tI-NP\nsees\tO\n\ndogs\tB-NP\nsee\tO\n\n"
    result = run("predict", "--lines", "--evaluate", "-", model, input="the cat\n")
    assert result.exit_code == 2


def test_lines_are_split_at_blanks_and_tabs_only(files: Path) -> None:
    (files / "train.txt").write_text("the D\nNew\xa0York N\n", encoding="utf-8")
    paths = [files / name for name in ("train.txt", "model.npz")]
    assert run("train", "-q", "-c", 10, *paths).exit_code == 0
    (files / "lines.txt").write_text("\ufeffthe\tNew\xa0York \n \t\n\ufeffthe\n", encoding="utf-8")
    result = run("predict", "--lines", files / "lines.txt", files / "model.npz")
    assert [line.split("\t")[0] for line in result.stdout.split("\n")] == [
        *("the", "New\xa0York", ""),
        *("\ufeffthe", "", ""),
    ]
    (files / "lines.txt").write_text("the\n\nNew York\n")
    result = run("predict", "--lines", "--separator", "tab", files / "lines.txt", paths[1])
    assert [line.split("\t")[0] for line in result.stdout.split("\n")] == [
        *("the", "", "New York", "", ""),
    ]


def test_a_byte_order_mark_is_not_part_of_the_first_template(files: Path) -> None:
    (files / "template").write_text("\ufeffU:%x[0,0]\n", encoding="utf-8")
    assert train_on(files).exit_code == 0
    names = SequenceTagger.load(files / "model.npz").feature_names_ or []
    assert "U:the" in names


def test_encodings_schemes_and_separators_of_files_are_options(files: Path) -> None:
    text = "-DOCSTART- -X- O\n\n" + 4 * "señor\xa0X N I-PER\nGil N I-PER\nva V O\n\n"
    (files / "train.txt").write_bytes(text.replace("\n", "\r\n").encode("latin-1"))
    result = train_on(files)
    assert "train.txt: not utf-8" in result.stderr.replace("\n", "")
    result = train_on(files, "--encoding", "latin-1", "--transitions", "bio")
    assert "IOB1" in result.stderr
    result = train_on(files, "--encoding", "latin-1", "--transitions", "bio", "--invalid", "repair")
    assert result.exit_code == 0, result.stderr
    arguments = ("--encoding", "latin-1", files / "train.txt", files / "model.npz")
    assert run("predict", *arguments, files / "out.txt").exit_code == 0
    lines = (files / "out.txt").read_bytes().decode("latin-1").splitlines()
    assert lines[:3] == ["señor\xa0X\tN\tI-PER\tB-PER", "Gil\tN\tI-PER\tI-PER", "va\tV\tO\tO"]
    (files / "train.txt").write_text("New York\tB-LOC\nis\tO\n")
    (files / "template").write_text("U:%x[0,0]\n")
    assert train_on(files, "--separator", "tab").exit_code == 0
    assert "U:New York" in (SequenceTagger.load(files / "model.npz").feature_names_ or [])


@pytest.mark.parametrize("options", [(), ("--invalid", "repair"), ("--invalid", "drop")])
def test_sentences_are_streamed_to_the_fit(
    files: Path, monkeypatch: Any, options: tuple[str, ...]
) -> None:
    given: list[Any] = []
    fit = SequenceTagger.fit

    def spy(self: Any, X: Any, y: Any) -> Any:
        given.append(hasattr(X, "__len__"))
        return fit(self, X, y)

    monkeypatch.setattr(SequenceTagger, "fit", spy)
    scheme = ("--transitions", "bio", *options) if options else ()
    if options:
        (files / "train.txt").write_text(5 * (SENTENCES + "\n") + "cat N I-NP\n")
    assert train_on(files, *scheme).exit_code == 0
    assert given == [False]
    expected = {"B-NP", "I-NP", "O"}
    assert set(SequenceTagger.load(files / "model.npz").classes_) == expected
    if "drop" in options:
        (files / "train.txt").write_text("cat N I-NP\n")
        result = train_on(files, *scheme)
        assert result.exit_code == 1
        assert "forbids the labels of all 1 sentences" in result.stderr.replace("\n", " ")
