"""The pages agree with benches/results, and the checks can fail."""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = "docs/benchmarks/linear.md"
ORIGIN = ",commit,date,machine,versions"
AT = ",abc1234,2026-01-31,a machine,python 3.11"

TEXT = """
Words.

<!-- table: fits solver=exact
| data | seconds | gap |
| {data} | {seconds:.1f} ({seconds:time}) | {gap:.1e} |
-->
<!-- end -->

<!-- table: fits pivot=solver
| data | exact | other |
| {data} | {exact/seconds:3} | {other/seconds:3} |
-->
<!-- end -->
"""
ROWS = ["data,solver,seconds,gap", "a,exact,1234.5,0.00051", "a,other,> 10,", "b,exact,2e-7,12"]


def results(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    script = ROOT / "scripts/results.py"
    command = [sys.executable, str(script), *options, str(folder)]
    return subprocess.run(command, capture_output=True, text=True)


def write(folder: Path, text: str, rows: list[str]) -> None:
    (folder / "benches/results").mkdir(exist_ok=True, parents=True)
    (folder / PAGE).parent.mkdir(exist_ok=True, parents=True)
    head, *rest = rows
    lines = [head + ORIGIN, *(row + AT for row in rest)]
    (folder / "benches/results/fits.csv").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / PAGE).write_text(text, "utf-8")


def test_the_tables_of_this_repository_are_up_to_date() -> None:
    done = results(ROOT, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_tables_are_filled_and_checked(tmp_path: Path) -> None:
    write(tmp_path, TEXT, ROWS)
    assert results(tmp_path, "--check").returncode == 1
    assert results(tmp_path).returncode == 0
    lines = (tmp_path / PAGE).read_text("utf-8").splitlines()
    assert "| a | 1234.5 (1230 s) | 5.1e-4 |" in lines
    assert "| b | 0.0 (200 ns) | 1.2e1 |" in lines
    assert "| a | 1230 | > 10 |" in lines
    assert "| b | 2e-7 | \u2013 |" in lines
    assert lines.count("<sub>abc1234; a machine; 2026-01-31</sub>") == 2
    assert results(tmp_path, "--check").returncode == 0
    # Filling again changes nothing, unless a value in the file changes.
    assert results(tmp_path).returncode == 0
    assert (tmp_path / PAGE).read_text("utf-8").splitlines() == lines
    write(tmp_path, "\n".join(lines) + "\n", [row.replace("1234.5", "99") for row in ROWS])
    done = results(tmp_path, "--check")
    assert done.returncode == 1
    assert "out of date" in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT + "\n| a table | by hand |\n|---|---|\n| 1 | 2 |\n", "a table without a file"),
        (TEXT.replace("{gap:.1e}", "{gaps:.1e}"), "lacks"),
        (TEXT.replace("solver=exact", "solver=none"), "no rows"),
    ],
)
def test_mistakes_in_a_page_are_reported(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, text, ROWS)
    done = results(tmp_path)
    assert done.returncode == 1
    assert message in done.stdout + done.stderr


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("DUALGAP_RESULTS", str(tmp_path))
    monkeypatch.syspath_prepend(ROOT / "benches")
    return importlib.import_module("_record")


def test_rows_replace_rows_with_the_same_key(record: Any) -> None:
    table = record.Table("fits", "data", "solver")
    table.add(data="a", solver="exact", seconds=1.23456789)
    table.add(data="b", solver="exact", seconds=float("nan"))
    table.add(data="a", solver="exact", seconds=2, gap=1e-3)
    rows = record.Table("fits", "data", "solver").read()
    found = [(row["data"], row["seconds"], row["gap"]) for row in rows]
    assert found == [("a", "2", "0.001"), ("b", "", "")]
    assert all(row["commit"] and row["machine"] and row["versions"] for row in rows)
    assert "numpy" in rows[0]["versions"]


def test_rows_of_each_instruction_set_are_kept(
    record: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    header = "data,seconds,commit,date,machine,versions"
    (tmp_path / "fits.csv").write_text(f"{header}\na,9,c,2026-01-31,m,v\n", "utf-8")
    table = record.Table("fits", "data")
    for simd, seconds in (("avx512", 1), ("avx2", 2), ("avx512", 3)):
        monkeypatch.setattr(record, "origin", lambda _, simd=simd: {"simd": simd, "commit": "c"})
        table.add(data="a", seconds=seconds)
    # The first row with an instruction set has replaced the old row without instruction set.
    table.add(data="a", seconds=4, simd="")
    found = [(row["simd"], row["seconds"]) for row in table.read()]
    assert found == [("avx512", "3"), ("avx2", "2"), ("", "4")]


BOTH = """
<!-- table: fits pivot=solver
| data | exact | other | peer |
| {data} | {exact/seconds} | {other/seconds} | {peer/seconds} |
-->
<!-- end -->
"""

FIGURES = """
<!-- figures
| data | seconds |
| a | {fits[data=a;solver=exact].seconds} |
| a, avx2 | {fits[data=a;solver=exact;simd=avx2].seconds} |
-->
<!-- end -->
"""


def test_tables_have_separate_rows_for_instruction_sets(tmp_path: Path) -> None:
    write(tmp_path, BOTH, ["data"])
    lines = [
        f"a,{solver},{seconds},{simd}{AT}"
        for simd, times in (("avx2", (1, 2)), ("avx512", (3, 4)))
        for solver, seconds in zip(("exact", "other"), times, strict=True)
    ]
    lines.append(f"a,peer,5,{AT}")
    text = "\n".join([f"data,solver,seconds,simd{ORIGIN}", *lines])
    (tmp_path / "benches/results/fits.csv").write_text(text + "\n", "utf-8")
    (tmp_path / "README.md").write_text(FIGURES, "utf-8")
    done = results(tmp_path)
    assert done.returncode == 0, done.stderr
    shown = (tmp_path / PAGE).read_text("utf-8").splitlines()
    expected = ["| data | exact | other | peer | SIMD |", "|---|---|---|---|---|"]
    expected += ["| a | 1 | 2 | 5 | avx2 |", "| a | 3 | 4 | 5 | avx512 |"]
    assert [line for line in shown if line.startswith("|")][-4:] == expected
    shown = (tmp_path / "README.md").read_text("utf-8").splitlines()
    # A figure that names no instruction set uses the row of the widest set.
    assert {"| a | 3 |", "| a, avx2 | 1 |"} <= set(shown)


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("fits[data=a;solver=exact].seconds :.1f", "1234.5"),
        ("fits[data=a;solver=exact].seconds / fits[data=b].seconds :.1e", "6.2e9"),
        ("max(fits[].gap) / min(fits[solver=exact].gap) :.0f", "23529"),
        ("fits[data=a;solver=other].seconds", "> 10"),
        ("max(fits[data=a|b;solver!=other].seconds) :.1f", "1234.5"),
        ("count(fits[data!=a|c].gap) :.0f", "1"),
    ],
)
def test_figures_are_filled_into_sentences(tmp_path: Path, expression: str, shown: str) -> None:
    write(tmp_path, f"It takes <!--= {expression} -->?<!--/--> s.\n", ROWS)
    assert results(tmp_path, "--check").returncode == 1
    done = results(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / PAGE).read_text("utf-8")
    assert text == f"It takes <!--= {expression} -->{shown}<!--/--> s.\n"
    assert results(tmp_path, "--check").returncode == 0


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("It takes 1.5 times as long.", "1.5"),
        ("It takes 3 times as long.", "3 times"),
        ("An error of 46 %.", "46 %"),
        ("A gap of 1e-3.", "1e-3"),
        ("It needs 40 MB.", "40 MB"),
        ("A gap of `1e-3` or $0.5$, at C = 0.1.", ""),
        ("Theorem 3.4, Table 2, Corollary 3.3, (2.24) and Python 3.11 of 2021-02-03.", ""),
        ("It is three times as fast.", "three times as fast"),
        ("It needs half the memory.", "half the memory"),
        ("It takes a tenth of the time.", "a tenth of the time"),
        ("It is ten times slower.", "ten times slower"),
        ("It is orders of magnitude faster.", "orders of magnitude faster"),
        ("Half of the rows, twice the radius, a tenth of the atoms, called two times.", ""),
        ("Letter has 26 classes and 20,000 rows.", ""),
    ],
)
def test_numbers_typed_into_a_page_are_reported(tmp_path: Path, text: str, typed: str) -> None:
    write(tmp_path, f"# Title\n\n{text}\n", ROWS)
    done = results(tmp_path, "--check")
    assert done.returncode == bool(typed)
    assert done.stdout == (
        f"{PAGE}:3: {typed!r} is typed: fill it from benches/results\n" if typed else ""
    )


def test_a_figure_that_begins_a_line_is_reported(tmp_path: Path) -> None:
    marker = "<!--= fits[data=a;solver=exact].seconds -->1234.5<!--/-->"
    write(tmp_path, f"# Title\n\nA fit takes\n{marker} s.\n", ROWS)
    done = results(tmp_path, "--check")
    assert done.returncode == 1
    assert f"{PAGE}:4: a figure begins the line" in done.stdout


def test_a_commit_that_looks_like_a_number_is_not_a_typed_number() -> None:
    typed_numbers = runpy.run_path(str(ROOT / "scripts/typed_numbers.py"))["typed_numbers"]
    assert list(typed_numbers("docs/papers.md", "It is 68e7599.")) == [(1, "68e7599")]
    assert not list(
        typed_numbers("docs/papers.md", "It is <!--when-->68e7599, 2026-11-28<!--/-->.")
    )


def test_pairs_of_measurements_alternate(record: Any) -> None:
    called: list[int] = []

    def run(which: int) -> float:
        called.append(which)
        return float(which * (1 + len(called)))

    first, second, ratio = record.paired(lambda: run(1), lambda: run(2), repeats=3)
    assert called == [1, 2, 1, 2, 1, 2]
    assert (first, second) == (4.0, 10.0)
    assert ratio == pytest.approx(2 * 5 / 4)
