"""Run the Python examples of a Markdown page, and compare their output with the documented output.

An example is a block that begins with ```python. The examples of a page share one namespace. Blocks
that begin with ```py use other packages, and are not run.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?(?![\w])")


def pages() -> list[Path]:
    """The README and every page with examples."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if blocks(page.read_text("utf-8"))]


def blocks(text: str, language: str = "python") -> list[str]:
    """The examples in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def documented_output(lines: list[str], last: int) -> str:
    """Return the documented output of a statement: a comment on its last line or below it."""
    behind = re.search(r"\s# (.*)$", lines[last - 1])
    below = []
    for line in lines[last:]:
        if not line.startswith("#"):
            break
        below.append(line.removeprefix("#"))
    return "\n".join([*([behind[1]] if behind else []), *below])


def statements(example: str) -> Iterator[tuple[Any, str]]:
    """Return the code of each statement and its documented output ("" without a print)."""
    lines = example.splitlines()
    for node in ast.parse(example).body:
        printing = isinstance(node, ast.Expr) and ast.unparse(node).startswith("print(")
        text = documented_output(lines, node.end_lineno or node.lineno) if printing else ""
        yield compile(ast.Module([node], []), "example", "exec"), text


def differences(expected: str, printed: str) -> list[str]:
    """Return the differences between documented and printed output.

    Numbers are compared at the precision of their documented digits, and "..." matches any further
    numbers. Output without numbers is compared as text.
    """
    head, elided, _ = expected.partition("...")
    wanted, found = NUMBER.findall(head), NUMBER.findall(printed)
    if not wanted and not found and expected:
        same = expected.split() == printed.split()
        return [] if same else [f"{expected!r} shown, {printed!r} printed"]
    if not wanted or len(wanted) > len(found) or (len(wanted) < len(found) and not elided):
        return [f"{len(wanted)} numbers shown, {len(found)} printed: {expected!r}, {printed!r}"]
    return [
        f"{a} shown, {b} printed"
        for a, b in zip(wanted, found, strict=False)
        # One unit in the last place may differ, because other processors round sums differently.
        if abs(float(a) - float(b)) > (1.001 * last_place_unit(a) if "." in a else 0.0)
    ]


def last_place_unit(number: str) -> float:
    """Return one unit in the last place of a number as it is written."""
    digits, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


def run(examples: list[str]) -> tuple[int, list[str]]:
    """Run examples in one namespace; return the number of compared outputs and the differences."""
    namespace: dict[str, Any] = {"__name__": "example"}
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


def page_failures(page: Path) -> list[str]:
    """Run the examples of a page; return the differences, and an entry if no output was
    compared."""
    examples = blocks(page.read_text("utf-8"))
    compared, wrong = run(examples)
    n_prints = sum(example.count("print(") > 0 for example in examples)
    return wrong if compared >= n_prints else [*wrong, f"{compared} outputs of {n_prints} compared"]


@contextlib.contextmanager
def no_network() -> Iterator[None]:
    """Raise an error for connections to other machines."""
    connect = socket.socket.connect

    def reject(self: socket.socket, address: Any) -> None:
        # A connected datagram socket sends nothing. Dask finds its own address in this way.
        stream = self.type == socket.SOCK_STREAM and isinstance(address, tuple)
        if stream and address[0] not in ("127.0.0.1", "::1", "localhost"):
            msg = f"an example connects to {address[0]}"
            raise AssertionError(msg)
        connect(self, address)

    with mock.patch.object(socket.socket, "connect", reject):
        yield
