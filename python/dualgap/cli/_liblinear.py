"""LIBLINEAR's options: taken as `train` and `predict` take them, or answered by what is nearest."""

from __future__ import annotations

import re
from typing import Any

import click

from dualgap.cli._paths import FileCommand

_CRAMMER_SINGER = "4"
# What stands nearest to each of LIBLINEAR's other solvers.
_SOLVERS = {
    "0": "logistic regression; --smoothing makes a loss here smooth",
    "1": "a squared hinge, one class against the rest; --smoothing makes a loss here smooth",
    "2": "a squared hinge, one class against the rest; --smoothing makes a loss here smooth",
    "3": "a hinge, one class against the rest; for two classes crammer-singer is it, with C halved",
    "5": "an L1 penalty, which there is for polynomial models only",
    "6": "an L1 penalty, which there is for polynomial models only",
    "7": "logistic regression; --smoothing makes a loss here smooth",
}
_ANSWERS = {
    "-C": "chooses C: MulticlassSVCCV does in Python; -v with one -c after the other here",
    "-M": "chooses how two classes become many: every loss here looks at all classes at once",
    "-R": "leaves the constant feature out of the penalty: a large -B nearly does",
    "-p": "belongs to regression, which dualgap does for polynomial models in Python",
    "-b": "writes probabilities, which these models do not have: --scores writes the scores",
}
_WEIGHT = re.compile(r"-w([^=]+)")


class Command(FileCommand):
    """A command that also understands LIBLINEAR's way to write options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite what is LIBLINEAR's, then parse."""
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
        else:
            found.append(word)
    return found


def _loss(ctx: click.Context, name: str | None) -> Any:
    """The loss that a solver's number stands for."""
    if name is None:
        raise click.UsageError("option '-s' requires an argument", ctx)
    if name == _CRAMMER_SINGER:
        return "crammer-singer"
    if name.isdigit():
        what = _SOLVERS.get(name, "no classifier that dualgap has")
        msg = f"LIBLINEAR's -s {name} is {what}. -s 4 is crammer-singer, and losses have names"
        raise click.UsageError(msg, ctx)
    return name
