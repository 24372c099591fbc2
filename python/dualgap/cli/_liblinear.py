"""Compatibility with LIBLINEAR's options, and hints for options without an equivalent."""

from __future__ import annotations

import re
from typing import Any

import click

from dualgap.cli._options import LOGISTIC
from dualgap.cli._paths import FileCommand

_LOSSES = {"0": LOGISTIC, "4": "crammer-singer", "7": LOGISTIC}
# LIBLINEAR's solvers without an equivalent: a description, and the closest alternative.
_SOLVERS = {
    "1": "a one-vs-rest squared hinge; the closest here is a smooth loss, with --smoothing",
    "2": "a one-vs-rest squared hinge; the closest here is a smooth loss, with --smoothing",
    "3": "a one-vs-rest hinge; for two classes, crammer-singer with half of C is the same",
    "5": "an L1 penalty, supported only by polynomial models and sequence taggers",
    "6": "an L1 penalty, supported only by polynomial models and sequence taggers",
}
_ANSWERS = {
    "-M": "chooses a multi-class scheme; every loss here treats all classes jointly",
    "-p": "is for regression, which dualgap supports with polynomial models in Python",
}
_WEIGHT = re.compile(r"-w([^=]+)")


class Command(FileCommand):
    """A command that also accepts options in LIBLINEAR's syntax."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Translate LIBLINEAR's options, then parse."""
        return super().parse_args(ctx, _translated(ctx, args))


def _translated(ctx: click.Context, args: list[str]) -> list[str]:
    taken = {name for option in ctx.command.params for name in option.opts}
    found: list[str] = []
    rest = iter(args)
    for word in rest:
        if word == "--":
            return [*found, word, *rest]
        weight = _WEIGHT.fullmatch(word) if "-w" in taken else None
        if word[:2] in _ANSWERS and word[:2] not in taken and not word.startswith("--"):
            raise click.UsageError(f"LIBLINEAR's {word[:2]} {_ANSWERS[word[:2]]}", ctx)
        if weight is not None:
            found += ["-w", f"{weight[1]}={next(rest, '')}"]
        elif "-s" in taken and word == "-s":
            found += [word, _loss(ctx, next(rest, None))]
        elif "-s" in taken and re.fullmatch(r"-s\d+", word):
            found += ["-s", _loss(ctx, word[2:])]
        elif "-b" in taken and re.fullmatch(r"-b[01]?", word):
            found += _probabilities(ctx, word[2:] or next(rest, None))
        else:
            found.append(word)
    return found


def _probabilities(ctx: click.Context, value: str | None) -> list[str]:
    """Translate LIBLINEAR's ``-b 0`` and ``-b 1``."""
    if value not in ("0", "1"):
        raise click.UsageError(f"-b must be followed by 0 or 1, got {value or 'nothing'}", ctx)
    return ["--probabilities"] if value == "1" else []


def _loss(ctx: click.Context, name: str | None) -> Any:
    """Translate a LIBLINEAR solver number to the name of a loss."""
    if name is None:
        raise click.UsageError("option '-s' requires an argument", ctx)
    if name in _LOSSES:
        return _LOSSES[name]
    if name.isdigit():
        what = _SOLVERS.get(name, "not a classifier that dualgap supports")
        msg = (
            f"LIBLINEAR's -s {name} is {what}. Use -s 4 (crammer-singer), -s 0 (logistic) or the "
            "name of a loss"
        )
        raise click.UsageError(msg, ctx)
    return name
