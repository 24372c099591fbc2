"""Every example in the README and the pages runs, and prints the documented output."""

from __future__ import annotations

from pathlib import Path

import pytest
from snippets import ROOT, blocks, no_network, page_failures, pages, run

README = ROOT / "README.md"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_of_a_page_print_the_documented_output(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with no_network():
        assert page_failures(page) == []


def test_the_readme_is_short_and_has_an_example_for_each_interface() -> None:
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 200
    assert len(blocks(text)) >= 5


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
        ("print(True)  # True", True),
        ("print(True)  # False", False),
    ],
)
def test_the_comparison_detects_wrong_output(example: str, right: bool) -> None:
    compared, wrong = run([example])
    assert compared == 1
    assert (wrong == []) == right


def test_connections_to_other_machines_are_rejected() -> None:
    example = "import socket\nwith socket.socket() as s: s.connect(('192.0.2.1', 80))"
    with no_network(), pytest.raises(AssertionError, match=r"connects to 192\.0\.2\.1"):
        run([example])
