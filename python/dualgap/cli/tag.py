"""The commands `dualgap tag train` and `dualgap tag predict`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console

from dualgap._files import check_writable, replacing
from dualgap.cli._integers import SEED
from dualgap.cli._options import Choice, separator_of
from dualgap.cli._paths import IN, OUT, FileCommand, Input, Output
from dualgap.cli._terminal import exit_codes
from dualgap.sequence import SequenceTagger, read_conll
from dualgap.sequence.columns import split_line
from dualgap.sequence.templates import Templates

Sentence = list[tuple[str, ...]]

_BATCH = 1000

_ENCODING = click.option(
    "--encoding", default="utf-8", show_default=True, help="Encoding of the files."
)
_SEPARATOR = click.option(
    "--separator",
    callback=separator_of,
    metavar="CHARACTER",
    help="Character between columns (\\t or tab for tabs); by default any blanks and tabs.",
)


@click.group()
def tag() -> None:
    """Label sequences in files with one token per line, as in CRF++ and CoNLL."""


@tag.command(cls=FileCommand)
@click.argument("training_file", type=IN)
@click.argument("model_file", type=Output(dir_okay=False, path_type=Path))
@click.option(
    "-t",
    "--templates",
    "template_file",
    type=IN,
    help="File of templates in CRF++ notation, such as U01:%x[-1,0]/%x[0,0]. By default the "
    "features are those of words: lower case, shape, affixes, neighbours, further columns.",
)
@click.option(
    "--loss",
    type=Choice(["hamming", "logistic"], {"crf": "logistic"}),
    default="hamming",
    show_default=True,
    help="hamming: structured SVM; logistic, or crf: conditional random field (CRF).",
)
@click.option(
    "-c",
    "--cost",
    type=click.FloatRange(min=0, min_open=True),
    help="Weight of the loss; by default 0.3 with hamming and 3 with logistic, or more if tokens "
    "have few features.",
)
@click.option("-f", "--min-count", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--transitions",
    type=click.Choice(["all", "seen", "bio", "bioes"]),
    default="all",
    show_default=True,
    help="Allowed transitions between labels.",
)
@click.option(
    "--invalid",
    type=click.Choice(["raise", "repair", "drop"]),
    default="raise",
    show_default=True,
    help="Treatment of sentences with labels that --transitions bio or bioes forbids: raise an "
    "error, repair the labels (IOB1 becomes BIO), or drop the sentences.",
)
@click.option(
    "--pairs",
    type=click.Choice(["all", "seen"]),
    help="Feature-label pairs that get a weight; by default all (hamming) or seen (logistic).",
)
@click.option(
    "-e",
    "--tolerance",
    type=click.FloatRange(min=0),
    help="Relative duality gap at which the fit stops; by default 0.2 with hamming. With logistic, "
    "a fit stops by default at 0.1, or as soon as the objective stops falling.",
)
@click.option("--max-iter", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "-p", "--n-jobs", type=click.IntRange(min=1), help="Number of threads; by default all cores."
)
@_SEPARATOR
@_ENCODING
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress.")
def train(training_file: Path, model_file: Path, quiet: bool, **options: Any) -> None:
    """Train a tagger on TRAINING_FILE and write it to MODEL_FILE.

    TRAINING_FILE has one token per line: the word, further columns, and the label last, separated
    by blanks or tabs. An empty line ends a sentence; "-" is standard input. The model stores how
    features are computed, so `dualgap tag predict` can read files with the same columns.

    Exit status: 0 on success, 1 if the data cannot be used, 2 for a usage error, 130 if
    interrupted.
    """
    with exit_codes():
        check_writable(model_file)
        encoding: str = options["encoding"]
        features: Any = "words"
        if options["template_file"] is not None:
            features = _templates(options["template_file"], encoding)
        sentences = _read(training_file, options["separator"], encoding)
        first = next(sentences, [])
        width = len(first[0]) - 1 if first else 0
        if first and width == 0:
            msg = f"{training_file}: tokens must have at least two columns, with the label last"
            raise ValueError(msg)
        y: list[list[str]] = []
        X = _unlabelled(chain([first] if first else [], sentences), y)
        tagger = SequenceTagger(
            options["loss"],
            C=options["cost"],
            features=features,
            transitions=options["transitions"],
            invalid=options["invalid"],
            pairs=options["pairs"],
            min_count=options["min_count"],
            tol=options["tolerance"],
            max_iter=options["max_iter"],
            random_state=options["seed"],
            n_jobs=options["n_jobs"],
            verbose=not quiet,
        )
        # The fit reads the file through X, which appends the labels of each sentence to y.
        tagger.fit(X, y)
        tagger.notes_ = {"n_columns": width}
        # Equal data must give equal files, so leave out the history (with its times) and --quiet.
        del tagger.history_
        tagger.set_params(verbose=None).save(model_file)
        click.echo(
            f"objective {tagger.objective_:.6g}  gap {tagger.relative_gap_:.2g} of the objective  "
            f"passes {tagger.n_iter_}"
        )
        console = Console(stderr=True, highlight=False, quiet=quiet)
        console.print(f"model written to {model_file}", markup=False, soft_wrap=True)


@tag.command("predict", cls=FileCommand)
@click.argument("input_file", type=IN)
@click.argument("model_file", type=Input(exists=True, dir_okay=False, path_type=Path))
@click.argument("output_file", type=OUT, default="-")
@click.option(
    "-p", "--n-jobs", type=click.IntRange(min=1), help="Number of threads; by default all cores."
)
@click.option("--evaluate", is_flag=True, help="Compare with the true labels in the last column.")
@click.option(
    "--lines",
    is_flag=True,
    help="Each line of INPUT_FILE is a sentence: words separated by blanks or tabs.",
)
@_SEPARATOR
@_ENCODING
def predict_command(
    input_file: Path, model_file: Path, output_file: Path, evaluate: bool, **options: Any
) -> None:
    """Predict a label for each token of INPUT_FILE; write the tokens and labels to OUTPUT_FILE.

    The label is appended to each token as a last column. The default OUTPUT_FILE is "-", standard
    output. With --evaluate, the command reports the share of correct labels on standard error and,
    if the package seqeval is installed, the F1 score of the chunks.

    Exit status: 0 on success, 1 if a file cannot be used, 2 for a usage error, 130 if interrupted.
    """
    with exit_codes():
        if evaluate and options["lines"]:
            msg = "--evaluate requires a label for each token; with --lines, there are none"
            raise click.UsageError(msg)
        if str(output_file) != "-":
            check_writable(output_file)
        tagger = SequenceTagger.load(model_file)
        tagger.n_jobs = options["n_jobs"]
        if "n_columns" not in tagger.notes_ or tagger.features is None:
            msg = f"{model_file}: not a model of tokens; train it with `dualgap tag train`"
            raise ValueError(msg)
        width = int(tagger.notes_["n_columns"])
        right: list[list[str]] = []
        found: list[list[str]] = []
        encoding: str = options["encoding"]
        read = _read_lines if options["lines"] else _read
        sentences = read(input_file, options["separator"], encoding)
        with _opened(output_file, encoding) as output:
            for batch in _batches(sentences):
                _check_width(input_file, len(batch[0][0]), width + evaluate)
                labels = tagger.predict([[token[:width] for token in tokens] for tokens in batch])
                _write(batch, labels, output)
                if evaluate:
                    right += [[token[-1] for token in tokens] for tokens in batch]
                    found += labels
        if evaluate:
            _report(right, found)


def _templates(path: Path, encoding: str) -> list[str]:
    """Read a file of feature templates."""
    try:
        with click.open_file(str(path), encoding=encoding) as file:
            return list(Templates.parse(file).lines)
    except ValueError as error:
        msg = f"{path}: {error}"
        raise ValueError(msg) from error


def _read(path: Path, separator: str | None, encoding: str) -> Iterator[Sentence]:
    """Yield the sentences of a file with one token per line, or of standard input."""
    source: Any = sys.stdin.buffer if str(path) == "-" else path
    return read_conll(source, separator=separator, encoding=encoding)


def _read_lines(path: Path, separator: str | None, encoding: str) -> Iterator[Sentence]:
    """Yield the sentences of a file with one sentence per line."""
    with click.open_file(str(path), encoding=encoding) as file:
        for number, line in enumerate(file, start=1):
            words = split_line(line, number, separator)
            if words:
                yield [(word,) for word in words]


def _unlabelled(sentences: Iterable[Sentence], y: list[list[str]]) -> Iterator[Sentence]:
    """Yield the tokens without their labels, and append the labels to `y`."""
    for tokens in sentences:
        # Intern labels, because few distinct strings occur for many tokens.
        y.append([sys.intern(token[-1]) for token in tokens])
        yield [token[:-1] for token in tokens]


def _check_width(path: Path, found: int, needed: int) -> None:
    if found < needed:
        msg = f"{path}: tokens must have {needed} columns, as in training, got {found}"
        raise ValueError(msg)


@contextmanager
def _opened(path: Path, encoding: str) -> Iterator[IO[str]]:
    """Open standard output, or a file that replaces `path` when it is complete."""
    if str(path) == "-":
        with click.open_file("-", "w", encoding=encoding) as output:
            yield output
        return
    with replacing(path) as file:
        text = TextIOWrapper(file, encoding=encoding)
        yield text
        text.detach()


def _batches(sentences: Iterator[Sentence]) -> Iterator[list[Sentence]]:
    batch = []
    for sentence in sentences:
        batch.append(sentence)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _write(sentences: list[Sentence], labels: list[list[str]], output: IO[Any]) -> None:
    for tokens, names in zip(sentences, labels, strict=True):
        for token, name in zip(tokens, names, strict=True):
            output.write("\t".join([*token, name]) + "\n")
        output.write("\n")


def _report(right: list[list[str]], found: list[list[str]]) -> None:
    pairs = [(a, b) for y, z in zip(right, found, strict=True) for a, b in zip(y, z, strict=True)]
    share = sum(a == b for a, b in pairs) / max(len(pairs), 1)
    click.echo(f"accuracy {share:.4f} of {len(pairs)} tokens", err=True)
    try:
        from dualgap.sequence import chunk_f1

        click.echo(f"chunk F1 {chunk_f1(right, found):.4f}", err=True)
    except ImportError:
        pass
