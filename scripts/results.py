"""Fill in the figures of README.md, the paper and docs from the files in benches/results.

Usage: python scripts/results.py [--check] [ROOT]

A table is the text between two markers. The first marker contains the table's header and the form
of a row, with the columns of `results/<name>.csv` in braces:

    <!-- table: polynomial-refits data=letter
    | refit | seconds |
    | {refit} | {seconds:.2f} |
    -->
    ... replaced ...
    <!-- end -->

`column=value` keeps the rows with that value, `column=a|b` those with one of the values, and
`column!=a|b` those with another value. `pivot=column` merges rows that agree in the plain fields;
`{value/field}` is then a field of the row with `value` in the pivot column (`{a/b/field}` with
`pivot=first,second`). The format `3` keeps three digits. The format `time` shows a number of
seconds in a suitable unit. A field that is empty or missing becomes a dash.

If the rows of a table come from several files, the marker names file, row and column of each
figure:

    <!-- figures
    | data | seconds |
    | letter | {polynomial-refits[data=letter;version=now].seconds:.2f} |
    -->
    ... replaced ...
    <!-- end -->

A figure within a sentence is an expression of figures, followed by a space, a colon and a format:

    <!--= fits[data=a].seconds / fits[data=b].seconds :.1f -->replaced<!--/-->

No line may begin with this marker, because Markdown would end the paragraph there. The expression
may begin on the next line.

A line of a page may name the commit and the date of the rows of all its figures:

    <!--when-->replaced<!--/-->

`min`, `max`, `sum`, `median`, `geomean` and `count` combine all rows that the brackets select. In a
table of figures, `{= ... :.1f}` contains an expression.

The column `simd` of a file names the instruction set of a row; it is empty if a row applies to all
instruction sets. If the rows of a table have several instruction sets, the table gets a column that
shows them. A figure is taken from the row of the widest instruction set, unless the brackets name
another set.

With --check nothing is written, and the exit status is 1 if a page does not match the files, if a
page of docs/benchmarks has a table without a file, or if a measured number is typed into a page
(see `scripts/typed_numbers.py`).
"""

from __future__ import annotations

import csv
import functools
import re
import statistics
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speed_chart import speed_chart
from typed_numbers import typed_numbers

MARKER = re.compile(
    r"(<!-- table: (?P<name>[\w-]+)(?P<options>[^\n]*)\n(?P<form>.*?)-->\n)"
    r".*?(?P<end><!-- end -->)",
    re.S,
)
FIGURES = re.compile(r"(<!-- figures\n(?P<form>.*?)-->\n).*?(?P<end><!-- end -->)", re.S)
FIGURE = re.compile(r"\{(?P<name>[\w-]+)\[(?P<where>[^\]]*)\]\.(?P<field>\w+):?(?P<spec>[^}]*)\}")
SENTENCE = re.compile(
    r"(<!--=\s+(?P<expression>.*?)(?: :(?P<spec>\S+))? -->)[^<]*(?P<end><!--/-->)", re.S
)
WHEN = re.compile(r"(<!--when-->)[^<]*(?P<end><!--/-->)")
EXPRESSION = re.compile(r"\{= (?P<expression>[^}]*?)(?: :(?P<spec>[^}\s]+))?\}")
TERM = re.compile(r"(?P<name>[a-z][\w-]*)\[(?P<where>[^\]]*)\]\.(?P<field>\w+)")
FUNCTIONS = {
    "min": min,
    "max": max,
    "sum": sum,
    "median": statistics.median,
    "geomean": statistics.geometric_mean,
    "count": len,
}
UNITS = [(1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (float("inf"), 1.0, "s")]
DASH = "\u2013"
# Widest first. Rows recorded before this column existed come last.
INSTRUCTION_SETS = ("avx512", "avx2", "neon", "scalar", "")


class Cell:
    """A field of a CSV file, which is formatted as a number if it is one."""

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


def is_number(text: str) -> bool:
    """Whether a cell holds a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def three_digits(number: float) -> str:
    """Format with at most three digits, without an exponent for ordinary numbers."""
    if number == 0 or not 1e-4 <= abs(number) < 1e6:
        return f"{number:.3g}"
    rounded = float(f"{number:.3g}")
    return f"{rounded:.0f}" if abs(rounded) >= 100 else f"{rounded:.3g}"


@functools.cache
def read(path: Path) -> list[dict[str, str]]:
    """Read the rows of a file, and set each row's instruction set."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{"simd": "", **row} for row in csv.DictReader(file)]


def fields(form: str) -> list[str]:
    """Return the field names in the braces of a row's form."""
    return [name for _, name, _, _ in string.Formatter().parse(form) if name]


def select(rows: list[dict[str, str]], options: dict[str, str]) -> list[dict[str, str]]:
    """Select the rows whose columns have the values that the options give."""
    wanted = {name: value for name, value in options.items() if name != "pivot"}
    return [row for row in rows if all(agrees(row, k, v) for k, v in wanted.items())]


def agrees(row: dict[str, str], name: str, values: str) -> bool:
    """Whether a row has one of the values, or none of them if the name ends with "!"."""
    found = row.get(name.removesuffix("!")) in values.split("|")
    return found != name.endswith("!")


def for_each_instruction_set(rows: list[dict[str, str]], plain: list[str]) -> list[dict[str, str]]:
    """Repeat each row without an instruction set for every set with the same plain fields."""

    def key(row: dict[str, str]) -> tuple[str, ...]:
        return tuple(row[name] for name in plain if name != "simd")

    sets: dict[tuple[str, ...], dict[str, None]] = {}
    for row in rows:
        if row["simd"]:
            sets.setdefault(key(row), {})[row["simd"]] = None
    return [
        {**row, "simd": name}
        for row in rows
        for name in ([row["simd"]] if row["simd"] else sets.get(key(row), [""]))
    ]


def gather(rows: list[dict[str, str]], form: str, pivot: list[str]) -> Iterator[dict[str, Cell]]:
    """Yield a mapping from field names to cells for each row of the table."""
    plain = [name for name in fields(form) if "/" not in name] if pivot else []
    groups: dict[tuple[str, ...], dict[str, Cell]] = {}
    for number, row in enumerate(for_each_instruction_set(rows, plain) if pivot else rows):
        group = tuple(row[name] for name in plain) if pivot else (str(number),)
        prefix = "".join(f"{row[name]}/" for name in pivot)
        cells = {prefix + name: Cell(value) for name, value in row.items()}
        groups.setdefault(group, {name: Cell(row[name]) for name in plain}).update(cells)
    for cells in groups.values():
        yield {name: cells.get(name, Cell("")) for name in fields(form)}


def check_names(name: str, form: str, rows: list[dict[str, str]]) -> None:
    """Raise an error for misspelt columns, which would otherwise become columns of dashes."""
    for field in fields(form):
        if field.rsplit("/", 1)[-1] not in rows[0]:
            sys.exit(f"error: table {name} uses the column {field!r}, which {name}.csv lacks")


def widest(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of the widest instruction set that occurs."""
    present = {row["simd"] for row in rows}
    best = next((name for name in INSTRUCTION_SETS if name in present), None)
    return [row for row in rows if row["simd"] == best]


def source(rows: list[dict[str, str]]) -> str:
    """Format commit, machine and date of the rows."""
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
    """Return the Markdown of a table."""
    header, row_form = form.strip().splitlines()
    rows = select(read(folder / f"{name}.csv"), options)
    if not rows:
        sys.exit(f"error: {name}.csv has no rows for {options}")
    check_names(name, row_form, rows)
    if len({row["simd"] for row in rows} - {""}) > 1:
        header, row_form = f"{header} SIMD |", f"{row_form} {{simd}} |"
    pivot = [column for column in options.get("pivot", "").split(",") if column]
    lines = [header, "|" + "---|" * (header.count("|") - 1)]
    for cells in gather(rows, row_form, pivot):
        lines.append(string.Formatter().vformat(row_form, (), cells))
    return "\n".join([*lines, "", source(rows)])


def rows_of(folder: Path, match: re.Match[str]) -> list[dict[str, str]]:
    """Return the rows that the expression of a figure selects."""
    where = dict(part.split("=", 1) for part in match["where"].split(";") if part)
    rows = select(read(folder / f"{match['name']}.csv"), where)
    if not rows:
        sys.exit(f"error: no rows for {match[0]}")
    return widest(rows)


def named(folder: Path, match: re.Match[str]) -> list[Cell]:
    """Return the cells of a column in the rows that the expression of a figure selects."""
    rows = rows_of(folder, match)
    check_names(match["name"], f"{{{match['field']}}}", rows)
    return [Cell(row[match["field"]]) for row in rows]


def figure(folder: Path, match: re.Match[str]) -> str:
    """Format one figure."""
    cells = named(folder, match)
    if len(cells) != 1:
        sys.exit(f"error: {len(cells)} rows for {match[0]}, there must be one")
    return format(cells[0], match["spec"])


def sentence(folder: Path, match: re.Match[str]) -> str:
    """Evaluate and format an expression of figures."""
    values: dict[str, Any] = {}

    def variable(term: re.Match[str]) -> str:
        name = f"_{len(values)}"
        cells = named(folder, term)
        numbers: Any = [float(cell.text) for cell in cells if is_number(cell.text)]
        if match["expression"] == term[0] and len(cells) == 1:
            numbers = cells[0].text
        elif not re.search(rf"\b(?:{'|'.join(FUNCTIONS)})\($", term.string[: term.start()]):
            if len(numbers) != 1:
                sys.exit(f"error: {len(numbers)} numbers for {term[0]}, there must be one")
            numbers = numbers[0]
        values[name] = numbers
        return name

    code = TERM.sub(variable, match["expression"])
    value = eval(code, {"__builtins__": {}, **FUNCTIONS}, values)
    return format(Cell(str(value)), match["spec"] or "")


def figures(folder: Path, form: str) -> str:
    """Return the Markdown of a table whose figures come from several files."""
    filled = EXPRESSION.sub(functools.partial(sentence, folder), form)
    filled = FIGURE.sub(functools.partial(figure, folder), filled)
    header, *lines = filled.splitlines()
    return "\n".join([header, "|" + "---|" * (header.count("|") - 1), *lines])


def fill(text: str, folder: Path) -> str:
    """Return a page with the figures of the files filled in."""

    def one(match: re.Match[str]) -> str:
        options = dict(option.split("=", 1) for option in match["options"].split())
        filled = table(folder, match["name"], options, match["form"])
        return f"{match[1]}\n{filled}\n\n{match['end']}"

    def several(match: re.Match[str]) -> str:
        return f"{match[1]}\n{figures(folder, match['form'])}\n\n{match['end']}"

    def inline(match: re.Match[str]) -> str:
        return f"{match[1]}{sentence(folder, match)}{match['end']}"

    filled = SENTENCE.sub(inline, FIGURES.sub(several, MARKER.sub(one, text)))
    return "\n".join(dated(folder, line) for line in filled.split("\n"))


def dated(folder: Path, line: str) -> str:
    """Return a line with the commits and the dates of the rows of its figures."""
    if not WHEN.search(line):
        return line
    rows = [
        row
        for sentence in SENTENCE.finditer(line)
        for term in TERM.finditer(sentence["expression"])
        for row in rows_of(folder, term)
    ]
    commits: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: row["date"]):
        commits[row["commit"].split()[0]] = row["date"]
    said = "; ".join(f"{commit}, {date}" for commit, date in commits.items())
    return WHEN.sub(lambda match: f"{match[1]}{said}{match['end']}", line)


def loose_tables(text: str) -> list[int]:
    """Return the line numbers of tables that are not filled in from a file."""
    bare = text
    for marker in (MARKER, FIGURES):
        bare = marker.sub(lambda match: "\n" * match[0].count("\n"), bare)
    return [number for number, line in enumerate(bare.splitlines(), 1) if line.startswith("|")]


def pages(root: Path) -> list[Path]:
    """List README.md, the paper and all pages that are not generated."""
    found = [
        root / "README.md",
        root / "paper" / "paper.md",
        *sorted((root / "docs").rglob("*.md")),
    ]
    return [path for path in found if path.exists() and "tutorials" not in path.parts]


def faults(root: Path, path: Path, text: str) -> Iterator[str]:
    """Yield tables and numbers of a filled page that have no source."""
    name = path.relative_to(root)
    if name.parts[:2] == ("docs", "benchmarks"):
        for line in loose_tables(text):
            yield f"{name}:{line}: a table without a file"
    for found in re.finditer(r"^ *<!--(?:=|when|/)", text, re.M):
        line = text[: found.start()].count("\n") + 1
        yield f"{name}:{line}: a figure begins the line, which ends the paragraph: move the marker"
    for line, number in typed_numbers(str(name), text):
        yield f"{name}:{line}: {number!r} is typed: fill it from benches/results"


def chart(folder: Path) -> str:
    """Draw the speed chart as an SVG."""

    def value(expression: str, spec: str) -> str:
        match = EXPRESSION.fullmatch(f"{{= {expression} :{spec}}}")
        assert match is not None
        return sentence(folder, match)

    return speed_chart(value)


def drawn_and_filled(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield path, content and filled content of the chart and of all pages."""
    folder, picture = root / "benches" / "results", root / "docs" / "pictures" / "speed.svg"
    if picture.exists():
        yield picture, picture.read_text("utf-8"), chart(folder)
    for path in pages(root):
        text = path.read_text("utf-8")
        yield path, text, fill(text, folder)


def main() -> int:
    """Fill or check all pages."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    root = Path(arguments[0]) if arguments else Path(__file__).parents[1]
    found: list[str] = []
    for path, text, filled in drawn_and_filled(root):
        found += faults(root, path, filled) if path.suffix == ".md" else []
        if "--check" not in sys.argv:
            path.write_text(filled, "utf-8")
        elif filled != text:
            found.append(f"{path.relative_to(root)} is out of date: run `make results`")
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
