"""The commands `dualgap tag train` and `dualgap tag predict`, modelled on CRF++'s."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console

from dualgap._files import check_writable, replacing
from dualgap.cli._integers import SEED
from dualgap.cli._paths import IN, OUT, FileCommand, Input, Output
from dualgap.cli._terminal import exit_codes
from dualgap.sequence import SequenceTagger
from dualgap.sequence.templates import Templates, read_columns

Sentence = list[list[str]]

_BATCH = 1000


@click.group()
def tag() -> None:
    """Label sequences in files with one token per line, as in CRF++ and CoNLL."""


@tag.command(cls=FileCommand)
@click.argument("template_file", type=IN)
@click.argument("training_file", type=IN)
@click.argument("model_file", type=Output(dir_okay=False, path_type=Path))
@click.option(
    "--loss", type=click.Choice(["hamming", "logistic"]), default="hamming", show_default=True
)
@click.option(
    "-c",
    "--cost",
    type=click.FloatRange(min=0, min_open=True),
    help="Weight of the loss; by default 0.3 with hamming and 3 with logistic.",
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
    "--pairs",
    type=click.Choice(["all", "seen"]),
    help="Feature-label pairs that get a weight; by default all (hamming) or seen (logistic).",
)
@click.option(
    "-e",
    "--tolerance",
    type=click.FloatRange(min=0),
    help="Relative duality gap to stop at; by default 0.2 with hamming. With logistic a fit by "
    "default ends at 0.1 or once the objective settles.",
)
@click.option("--max-iter", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "-p", "--n-jobs", type=click.IntRange(min=1), help="Number of threads; by default all cores."
)
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress.")
def train(
    template_file: Path, training_file: Path, model_file: Path, quiet: bool, **options: Any
) -> None:
    """Train a tagger on TRAINING_FILE and write it to MODEL_FILE.

    TRAINING_FILE has one token per line, with columns separated by white space and the label last.
    An empty line ends a sentence; "-" is standard input. TEMPLATE_FILE contains templates in CRF++
    notation, such as U01:%x[-1,0]/%x[0,0]. They are stored in the model.

    Exit status: 0 on success, 1 if the data cannot be used, 2 for a usage error, 130 if
    interrupted.
    """
    with exit_codes():
        check_writable(model_file)
        with _named(template_file), click.open_file(str(template_file), encoding="utf-8") as file:
            templates = Templates.parse(file)
        with _named(training_file), click.open_file(str(training_file), encoding="utf-8") as file:
            sentences = list(read_columns(file))
            if sentences and len(sentences[0][0]) < 2:
                msg = (
                    f"tokens must have at least two columns, with the label last, "
                    f"got {len(sentences[0][0])}"
                )
                raise ValueError(msg)
            X = [templates.expand([token[:-1] for token in tokens]) for tokens in sentences]
        y = [[token[-1] for token in tokens] for tokens in sentences]
        tagger = SequenceTagger(
            options["loss"],
            C=options["cost"],
            transitions=options["transitions"],
            pairs=options["pairs"],
            transition_features=["B"] if templates.on_transitions else None,
            min_count=options["min_count"],
            tol=options["tolerance"],
            max_iter=options["max_iter"],
            random_state=options["seed"],
            n_jobs=options["n_jobs"],
            verbose=not quiet,
        )
        tagger.fit(X, y)
        tagger.notes_ = {"templates": list(templates.lines), "n_columns": templates.n_columns}
        # The same data give the same file: without seconds, and with --quiet as without.
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
def predict_command(
    input_file: Path, model_file: Path, output_file: Path, n_jobs: int | None, evaluate: bool
) -> None:
    """Predict a label for each token of INPUT_FILE; write the tokens and labels to OUTPUT_FILE.

    The label is appended to each token as a last column. The default OUTPUT_FILE is "-", standard
    output. With --evaluate, the command reports the share of correct labels on standard error and,
    if the package seqeval is installed, the F1 score of the chunks.

    Exit status: 0 on success, 1 if a file cannot be used, 2 for a usage error, 130 if interrupted.
    """
    with exit_codes():
        if str(output_file) != "-":
            check_writable(output_file)
        tagger = SequenceTagger.load(model_file)
        tagger.n_jobs = n_jobs
        notes = tagger.notes_
        if "templates" not in notes:
            msg = f"{model_file}: the model has no templates; train it with `dualgap tag train`"
            raise ValueError(msg)
        templates = Templates(tuple(notes["templates"]), int(notes["n_columns"]))
        right: list[list[str]] = []
        found: list[list[str]] = []
        with (
            _named(input_file),
            click.open_file(str(input_file), encoding="utf-8") as file,
            _opened(output_file) as output,
        ):
            for sentences in _batches(read_columns(file)):
                labels = tagger.predict([templates.expand(tokens) for tokens in sentences])
                _write(sentences, labels, output)
                if evaluate:
                    right += [[token[-1] for token in tokens] for tokens in sentences]
                    found += labels
        if evaluate:
            _report(right, found)


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """Open standard output, or a file that replaces `path` once it is complete."""
    if str(path) == "-":
        with click.open_file("-", "w", encoding="utf-8") as output:
            yield output
        return
    with replacing(path) as file:
        text = TextIOWrapper(file, encoding="utf-8")
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


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Prefix the errors in a file's lines with the name of the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        msg = f"{path}: not UTF-8 ({error})"
        raise ValueError(msg) from error
    except ValueError as error:
        msg = f"{path}: {error}"
        raise ValueError(msg) from error
