"""scripts/check_words.py finds phrases in prose, and leaves code alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_words.py"
# Phrases to avoid, each cut in two so that this file itself passes the check.
AGAIN, CLAUSE = "an" + "ew", "Wh" + "at a fit keeps."


def check(folder: Path, name: str, text: str) -> subprocess.CompletedProcess[str]:
    """Run the script on one file of a new repository."""
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    (folder / name).write_text(text, "utf-8")
    return subprocess.run(
        [sys.executable, str(SCRIPT), name], cwd=folder, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.md", f"# Title\n\nA fit begins\n{AGAIN}.\n", 4),
        ("a.md", f"- one\n- {CLAUSE}\n", 2),
        ("a.md", "A gap of\n% is hidden.\n", 2),
        ("a.md", "The set $\\text{row\nsums}$.\n", 1),
        ("a.py", f'"""Module."""\n\nx = 1\n# begins\n# {AGAIN}\n', 5),
        ("a.py", f'def f():\n    """{CLAUSE}"""\n', 2),
        ("a.py", f'raise ValueError("begin {AGAIN}")\n', 1),
        ("a.rs", f"/// {CLAUSE}\nfn f() {{}}\n", 1),
        ("a.rs", f'fn f() {{\n    panic!("begin {AGAIN}");\n}}\n', 2),
        ("a.rs", f"fn f() {{\n    g(); // begin {AGAIN}\n}}\n", 2),
        ("a.rs", "/// Two threads, by\n/// turns.\nfn f() {}\n", 1),
        ("a.c", f"int f(void);\n// begin {AGAIN}\n", 2),
        ("a.toml", f"# {CLAUSE}\n[a]\n", 1),
        ("a.yml", f"a: 1 # begin {AGAIN}\n", 1),
        ("Makefile", f"all: ## Begin {AGAIN}\n", 1),
        ("script", f"#!/bin/sh\n# begin\n# {AGAIN}\n", 3),
    ],
)
def test_avoided_phrases_are_reported_in_prose(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    outcome = check(tmp_path, name, text)
    assert outcome.returncode == 1
    assert f"{name}:{line}: " in outcome.stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", f"```py\n{AGAIN} = 1\n```\n\nThe flag `{AGAIN}`. What is a gap?\n"),
        ("a.py", f'"""Doubles.\n\n>>> {AGAIN} = 2\n"""\n\n{AGAIN} = 1\n'),
        ("a.rs", f"/// Doubles.\n///\n/// ```\n/// let {AGAIN} = 1;\n/// ```\nfn {AGAIN}() {{}}\n"),
        ("a.toml", f'{AGAIN} = "{AGAIN}"\n'),
        ("a.md", f"The word {AGAIN} is quoted. <!-- words: allow -->\n"),
    ],
)
def test_code_questions_and_allowed_lines_pass(tmp_path: Path, name: str, text: str) -> None:
    outcome = check(tmp_path, name, text)
    assert (outcome.returncode, outcome.stdout) == (0, "")


def test_misspelt_words_are_reported(tmp_path: Path) -> None:
    outcome = check(tmp_path, "a.md", "We recie" + "ve t" + "eh rows.\n")
    assert outcome.returncode == 1
    assert "t" + "eh" in outcome.stdout
