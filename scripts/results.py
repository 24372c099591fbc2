"""Fill the tables of benches/RESULTS.md and of the README from the files in benches/results.

Usage: python scripts/results.py [--check] [FOLDER]

A table is the text between two markers. The first holds its header and the form of a row, with the
columns of `results/<name>.csv` in braces:

    <!-- table: polynomial-refits data=letter
    | refit | seconds |
    | {refit} | {seconds:.2f} |
    -->
    ... replaced ...
    <!-- end -->

`column=value` keeps the rows with that value. `pivot=column` makes one row of those that agree in
the plain fields; `{value/field}` is a field of that with `value` in the pivot column (`{a/b/field}`
with `pivot=first,second`). The format `3` keeps three digits, `time` chooses the unit of a number
of seconds. A field that is empty or missing becomes a dash.

A table whose rows come from several files names file, row and column of each figure:

    <!-- figures
    | data | seconds |
    | letter | {polynomial-refits[data=letter;version=now].seconds:.2f} |
    -->
    ... replaced ...
    <!-- end -->

The column `simd` of a file names the instruction set of a row; it is empty where a row holds for
all. A table whose rows have several gets a column that shows it. A figure is of the widest, unless
the brackets name another.

With --check nothing is written, and the exit status is 1 where a page is not in step with the
files, or RESULTS.md has a table without a file.
"""

from __future__ import annotations

import csv
import re
import string
import sys
from collections.abc import Iterator
from pathlib import Path

MARKER = re.compile(
    r"(<!-- table: (?P<name>[\w-]+)(?P<options>[^\n]*)\n(?P<form>.*?)-->\n)"
    r".*?(?P<end><!-- end -->)",
    re.S,
)
FIGURES = re.compile(r"(<!-- figures\n(?P<form>.*?)-->\n).*?(?P<end><!-- end -->)", re.S)
FIGURE = re.compile(r"\{(?P<name>[\w-]+)\[(?P<where>[^\]]*)\]\.(?P<field>\w+):?(?P<spec>[^}]*)\}")
UNITS = [(1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (float("inf"), 1.0, "s")]
DASH = "\u2013"
# The widest first. Rows of before the column was recorded come last.
INSTRUCTION_SETS = ("avx512", "avx2", "neon", "scalar", "")


class Cell:
    """A field of a CSV file, formatted as a number where it is one."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __format__(self, spec: str) -> str:
        if not self.text:
            return DASH
        try:
            number = float(self.text)
        except ValueError:
            return self.text
        if spec == "time":
            _, scale, unit = next(row for row in UNITS if number < row[0])
            return f"{three_digits(number * scale)} {unit}"
        if not spec:
            return self.text
        shown = three_digits(number) if spec == "3" else format(number, spec)
        return re.sub(r"e([+-])0*(\d+)", lambda m: "e" + m[1].strip("+") + m[2], shown)


def three_digits(number: float) -> str:
    """At most three digits, without an exponent for ordinary numbers."""
    if number == 0 or not 1e-4 <= abs(number) < 1e6:
        return f"{number:.3g}"
    rounded = float(f"{number:.3g}")
    return f"{rounded:.0f}" if abs(rounded) >= 100 else f"{rounded:.3g}"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [{"simd": "", **row} for row in csv.DictReader(file)]


def fields(form: str) -> list[str]:
    """The names in braces."""
    return [name for _, name, _, _ in string.Formatter().parse(form) if name]


def select(rows: list[dict[str, str]], options: dict[str, str]) -> list[dict[str, str]]:
    wanted = {name: value for name, value in options.items() if name != "pivot"}
    return [row for row in rows if all(row.get(k) == v for k, v in wanted.items())]


def for_each_instruction_set(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows, each without an instruction set repeated for all sets of the table."""
    sets = dict.fromkeys(row["simd"] for row in rows if row["simd"])
    return [
        {**row, "simd": name}
        for row in rows
        for name in ([row["simd"]] if row["simd"] else sets or [""])
    ]


def gather(rows: list[dict[str, str]], form: str, pivot: list[str]) -> Iterator[dict[str, Cell]]:
    """One mapping of field names to cells for each row of the table."""
    plain = [name for name in fields(form) if "/" not in name] if pivot else []
    groups: dict[tuple[str, ...], dict[str, Cell]] = {}
    for number, row in enumerate(for_each_instruction_set(rows) if pivot else rows):
        group = tuple(row[name] for name in plain) if pivot else (str(number),)
        prefix = "".join(f"{row[name]}/" for name in pivot)
        cells = {prefix + name: Cell(value) for name, value in row.items()}
        groups.setdefault(group, {name: Cell(row[name]) for name in plain}).update(cells)
    for cells in groups.values():
        yield {name: cells.get(name, Cell("")) for name in fields(form)}


def check_names(name: str, form: str, rows: list[dict[str, str]]) -> None:
    """A misspelt column must not become a column of dashes."""
    for field in fields(form):
        if field.rsplit("/", 1)[-1] not in rows[0]:
            sys.exit(f"error: the table {name} wants {field!r}, which {name}.csv does not have")


def widest(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows of the widest instruction set among them."""
    present = {row["simd"] for row in rows}
    best = next((name for name in INSTRUCTION_SETS if name in present), None)
    return [row for row in rows if row["simd"] == best]


def source(rows: list[dict[str, str]]) -> str:
    """Commit, machine and date of the rows."""
    places: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        place = (row["commit"], row["machine"], row["simd"])
        places.setdefault(place, set()).add(row["date"])
    said = []
    for place, dates in places.items():
        when = min(dates) if len(dates) == 1 else f"{min(dates)} to {max(dates)}"
        said.append("; ".join(part for part in (*place, when) if part))
    return f"<sub>{'. '.join(said)}</sub>"


def table(folder: Path, name: str, options: dict[str, str], form: str) -> str:
    """The Markdown of a table."""
    header, row_form = form.strip().splitlines()
    rows = select(read(folder / f"{name}.csv"), options)
    if not rows:
        sys.exit(f"error: {name}.csv has no rows for {options}")
    check_names(name, row_form, rows)
    if len({row["simd"] for row in rows}) > 1:
        header, row_form = f"{header} SIMD |", f"{row_form} {{simd}} |"
    pivot = [column for column in options.get("pivot", "").split(",") if column]
    lines = [header, "|" + "---|" * (header.count("|") - 1)]
    for cells in gather(rows, row_form, pivot):
        lines.append(string.Formatter().vformat(row_form, (), cells))
    return "\n".join([*lines, "", source(rows)])


def figures(folder: Path, form: str) -> str:
    """The Markdown of a table whose figures come from several files."""

    def one(match: re.Match[str]) -> str:
        where = dict(part.split("=", 1) for part in match["where"].split(";"))
        rows = widest(select(read(folder / f"{match['name']}.csv"), where))
        if len(rows) != 1:
            sys.exit(f"error: {len(rows)} rows for {match[0]}, there must be one")
        check_names(match["name"], f"{{{match['field']}}}", rows)
        return format(Cell(rows[0][match["field"]]), match["spec"])

    header, *lines = FIGURE.sub(one, form).splitlines()
    return "\n".join([header, "|" + "---|" * (header.count("|") - 1), *lines])


def fill(text: str, folder: Path) -> str:
    """RESULTS.md with its tables as the files have them."""

    def one(match: re.Match[str]) -> str:
        options = dict(option.split("=", 1) for option in match["options"].split())
        filled = table(folder, match["name"], options, match["form"])
        return f"{match[1]}\n{filled}\n\n{match['end']}"

    def several(match: re.Match[str]) -> str:
        return f"{match[1]}\n{figures(folder, match['form'])}\n\n{match['end']}"

    return FIGURES.sub(several, MARKER.sub(one, text))


def loose_tables(text: str) -> list[int]:
    """Lines of tables that are not filled from a file."""
    bare = MARKER.sub(lambda match: "\n" * match[0].count("\n"), text)
    return [number for number, line in enumerate(bare.splitlines(), 1) if line.startswith("|")]


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    here = Path(arguments[0]) if arguments else Path(__file__).parents[1] / "benches"
    status = 0
    for path in (here / "RESULTS.md", here.parent / "README.md"):
        if not path.exists():
            continue
        text = path.read_text("utf-8")
        filled = fill(text, here / "results")
        if path.name == "RESULTS.md" and (loose := loose_tables(filled)):
            print(f"{path}: tables without a file, at lines {loose}")
            status = 1
        elif "--check" not in sys.argv:
            path.write_text(filled, "utf-8")
        elif filled != text:
            print(f"{path} is not in step with {here / 'results'}: run `make results`")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
