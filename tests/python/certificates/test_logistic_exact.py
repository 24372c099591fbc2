"""Bounds of logistic regression, checked against optima computed with 120 digits or more."""

from __future__ import annotations

import os

import pytest
import scipy.sparse as sp
from claims import check_claims
from logistic_kinds import claims_of_seed, draw_problem

COUNT = int(os.environ.get("DUALGAP_TRIALS", "60"))


@pytest.mark.parametrize("seed", range(COUNT))
def test_the_optimum_is_between_the_bounds(seed: int) -> None:
    counts, wrong = check_claims(claims_of_seed(seed))
    assert not wrong
    assert counts["holds"] >= 2


def test_the_problems_have_every_layout_and_every_solver_fits_some() -> None:
    drawn = [draw_problem(seed)[0] for seed in range(60)]
    stored = [X.nnz / (X.shape[0] * X.shape[1]) for X in drawn if sp.issparse(X)]
    assert min(stored) < 0.25
    assert max(stored) == 1.0
    assert len(stored) < 60
    claims = [claim for seed, X in enumerate(drawn[:20]) if sp.issparse(X)
              for claim in claims_of_seed(seed)]  # fmt: skip
    assert sum(claim is not None and "dual-descent" in claim.what for claim in claims) >= 3
