"""The Python examples of the README run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_examples_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)
    assert len(examples) >= 4
    # Later examples go on where earlier ones ended.
    namespace: dict[str, Any] = {}
    for example in examples:
        exec(compile(example, str(README), "exec"), namespace)
    printed = capsys.readouterr().out
    # The numbers in the comments.
    score = float(printed.splitlines()[0])
    assert score == pytest.approx(0.97, abs=0.015)
    assert namespace["model"].score(namespace["rows"], namespace["targets"]) > 0.985
    assert namespace["svm"].converged_
