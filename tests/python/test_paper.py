"""The paper cites every entry of its bibliography, and nothing else."""

from __future__ import annotations

import re

from snippets import ROOT

PAPER = ROOT / "paper"


def test_every_citation_is_in_the_bibliography_and_vice_versa() -> None:
    text = (PAPER / "paper.md").read_text("utf-8")
    cited = set(re.findall(r"@([a-z]+\d{4})", text))
    entries = re.findall(r"^@\w+\{(\w+),", (PAPER / "paper.bib").read_text("utf-8"), re.M)
    assert len(entries) == len(set(entries)) > 10
    assert cited == set(entries)
    assert "bibliography: paper.bib" in text


def test_every_time_in_the_table_of_the_paper_is_filled_in() -> None:
    text = (PAPER / "paper.md").read_text("utf-8")
    table = text.split("-->")[1].split("<!-- end -->")[0]
    assert table.count(" s |") == 6
