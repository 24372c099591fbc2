"""`make papers` finds its commands, and replaces missing data sets by generated ones."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from dualgap import MulticlassSVC
from dualgap.losses import WeightedUsunier

ROOT = Path(__file__).parents[2]

if not (ROOT / "benches").is_dir():
    pytest.skip("needs the folder of the project", allow_module_level=True)

SCRIPT = runpy.run_path(str(ROOT / "scripts/papers.py"))

PAGE = """
| item | code, test or command | outcome | measured |
|---|---|---|---|
| A | `solver/a.rs`; `multiclass.py steps`, `paper` | **agrees** | |
| B | `multiclass.py paper`; `cargo bench --bench walrus` | **agrees**, see `other` | |
| C | `losses.py` | **built** | |
"""


def test_commands_are_read_from_the_second_column() -> None:
    found = SCRIPT["commands"](PAGE)
    assert found == ["cargo bench --bench walrus", "multiclass.py steps", "multiclass.py paper"]


def test_commands_of_the_documented_page_are_found() -> None:
    found = SCRIPT["commands"]((ROOT / "docs/papers.md").read_text("utf-8"))
    assert {"walrus_paper.py figure", "walrus_paper.py early", "consensus.py penalty"} <= {*found}


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("walrus_paper.py early vowel", "vowel.npz"),
        ("polynomial_theory.py rate", "vowel.npz"),
        ("multiclass.py paper --sets vowel --halves 1 --max-iter 20", "vowel.npz"),
        ("multiclass.py paper --sets mnist --halves 1 --max-iter 10", "mnist.whl"),
        ("recognition.py ocr --halves 1 --max-iter 20", "ocr_letters.npz"),
        ("alignment.py --max-iter 5", "hansards"),
        ("recommender_bases.py ML-1M fm-single", "movielens_1m.npz"),
        ("recommender_clicks.py movielens", "movielens_1m.npz"),
        ("frank_wolfe_everyone.py --problem completion", "movielens_1m.npz"),
        ("liblinear.py vowel --C 0.05 --level 1e-2 --repeats 1", "vowel.npz"),
        ("cross_validation.py bounds dna", "dna.npz"),
        ("tagger_growth.py chunks --losses hamming", "conll2000.zip"),
        ("sequence.py 'dualgap, hamming' --repeats 1", "conll2000.zip"),
    ],
)
def test_a_benchmark_without_data_runs_on_a_generated_set(command: str, file: str) -> None:
    results = ROOT / "benches/results"
    before = {path.name: path.read_bytes() for path in results.iterdir()}
    environment: dict[str, Any] = {**os.environ}
    environment.pop("DUALGAP_DATA", None)
    script, *words = shlex.split(command)
    run = subprocess.run(
        [sys.executable, str(ROOT / "benches" / script), *words],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    name = file.partition(".")[0]
    assert f"{name}: a generated set replaces {file} (DUALGAP_DATA is not set)" in run.stderr
    assert re.search(
        "^(data|penalty|training|method|problem|task|system) ", run.stdout, re.MULTILINE
    )
    assert {path.name: path.read_bytes() for path in results.iterdir()} == before


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("smoothing", [0.0, 0.01])
@pytest.mark.parametrize("method", ["LSFW", "StdFW", "PG"])
def test_the_loop_with_every_iterate_takes_the_steps_of_a_fit(
    method: str, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benches"))
    tajima = importlib.import_module("support.tajima")
    X, y = load_iris(return_X_y=True)
    X = X - X.mean(axis=0)
    options: dict[str, Any] = {
        "LSFW": {"solver": "frank-wolfe"},
        "StdFW": {"solver": "frank-wolfe", "step": "scheduled"},
        "PG": {"solver": "projected-gradient"},
    }[method]
    weights = [2 / 3, 1 / 3, 0.0]
    model = MulticlassSVC(
        WeightedUsunier(weights), C=0.01, smoothing=smoothing, tol=0.0, max_iter=16,
        fit_intercept=False, **options,
    ).fit(X, y)  # fmt: skip
    problem = tajima.Problem(X, y, weights, smoothing, 0.01)
    if method == "PG":
        found = tajima.projected_gradient(problem, 16)
    else:
        found = tajima.frank_wolfe(problem, 16, method == "LSFW")
    best = min(problem.null_objective(), *found[~np.isnan(model.history_["gap"])])
    assert model.null_objective_ == pytest.approx(problem.null_objective(), rel=1e-12)
    assert model.objective_ == pytest.approx(best, rel=1e-9)
    assert best < model.null_objective_
