"""The Python examples of the README run, and print what the README says that they print."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[2] / "README.md"
NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?(?![\w])")


def blocks(text: str) -> list[str]:
    """The Python examples, in order."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)


def shown(lines: list[str], last: int) -> str:
    """What an example says a statement prints: the comment behind its last line, or lines below."""
    behind = re.search(r"\s# (.*)$", lines[last - 1])
    below = []
    for line in lines[last:]:
        if not line.startswith("#"):
            break
        below.append(line.removeprefix("#"))
    return "\n".join([*([behind[1]] if behind else []), *below])


def statements(example: str) -> Iterator[tuple[Any, str]]:
    """Code of each statement, and the output shown for it ("" for one that is no print)."""
    lines = example.splitlines()
    for node in ast.parse(example).body:
        printing = isinstance(node, ast.Expr) and ast.unparse(node).startswith("print(")
        text = shown(lines, node.end_lineno or node.lineno) if printing else ""
        yield compile(ast.Module([node], []), str(README), "exec"), text


def differences(expected: str, printed: str) -> list[str]:
    """Compare each number to the digits that are shown; "..." stands for any further ones."""
    head, elided, _ = expected.partition("...")
    wanted, found = NUMBER.findall(head), NUMBER.findall(printed)
    if not wanted or len(wanted) > len(found) or (len(wanted) < len(found) and not elided):
        return [f"{len(wanted)} numbers shown, {len(found)} printed: {expected!r}, {printed!r}"]
    return [
        f"{a} shown, {b} printed"
        for a, b in zip(wanted, found, strict=False)
        # One unit in the last place: sums may be rounded differently on another processor.
        if abs(float(a) - float(b)) > (1.001 * unit(a) if "." in a else 0.0)
    ]


def unit(number: str) -> float:
    """One unit in the last place of a number as it is written."""
    digits, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


def run(examples: list[str]) -> tuple[int, list[str]]:
    """Run examples in one namespace; return how many outputs were compared, and what differs."""
    namespace: dict[str, Any] = {}
    compared, wrong = 0, []
    for example in examples:
        for code, expected in statements(example):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, namespace)
            if printed.getvalue() or expected:
                compared += 1
                wrong += differences(expected, printed.getvalue())
    return compared, wrong


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_number_that_the_readme_prints() -> None:
    examples = blocks(README.read_text("utf-8"))
    assert len(examples) >= 8
    compared, wrong = run(examples)
    assert compared == sum(example.count("print(") for example in examples)
    assert wrong == []


@pytest.mark.parametrize(
    ("example", "right"),
    [
        ("print(0.972)  # 0.97", True),
        ("print(0.959)  # 0.97", False),
        ("print(3)  # 3", True),
        ("print(4)  # 3", False),
        ("print(1.2e-7)  # 1.2e-7", True),
        ("print(1.4e-7)  # 1.2e-7", False),
        ("print([0, 1, 2, 3])  # 0, 1, ...", True),
        ("print([0, 1, 2, 3])  # 0, 2, ...", False),
        ("print([0, 1, 2, 3])  # 0, 1", False),
        ("print(0.5)", False),
        ("print({'a@5': 0.5})\n# {'a@5': 0.5}", True),
        ("print({'a@5': 0.5})\n# {'a@5': 0.8}", False),
        ("print(1,\n      2)  # 1 2", True),
        ("for i in range(2):\n    print(i)", False),
    ],
)
def test_the_comparison_can_fail(example: str, right: bool) -> None:
    compared, wrong = run([example])
    assert compared == 1
    assert (wrong == []) == right
