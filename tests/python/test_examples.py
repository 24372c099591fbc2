"""Tutorials and plotting scripts run quietly and without a network, and draw pictures."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from snippets import ROOT, no_network

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_a_tutorial_runs_and_draws_a_picture(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    monkeypatch.chdir(tmp_path)
    try:
        with no_network():
            runpy.run_path(str(script), run_name="__main__")
        assert pyplot.get_fignums(), "no picture"
    finally:
        pyplot.close("all")


@pytest.mark.parametrize("script", PICTURES, ids=lambda script: script.stem)
def test_a_picture_is_drawn(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    suffix = next(file.suffix for file in script.parent.glob(f"{script.stem}.*g"))
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / f"picture{suffix}")])
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        pyplot.close("all")
    assert (tmp_path / f"picture{suffix}").stat().st_size > 5000


def test_every_linked_page_exists() -> None:
    missing = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            built = target.startswith("tutorials/")  # `make docs` writes these pages.
            if not built and not (page.parent / target).exists():
                missing.append(f"{page.relative_to(ROOT)}: {target}")
    assert missing == []
