"""The logistic loss with more features than tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sentences import sentences

from dualgap.sequence import SequenceTagger


def wide(n: int, *, ones: bool) -> tuple[list[Any], list[list[str]]]:
    """Generate sentences in which each token has two features that no other token has."""
    named, y = sentences(n)
    n_tokens = sum(map(len, y))
    known = {
        feature: i for i, feature in enumerate(sorted({f for s in named for t in s for f in t}))
    }
    rng = np.random.default_rng(0)
    X, first = [], len(known)
    for sentence in named:
        table = sp.lil_array((len(sentence), len(known) + 2 * n_tokens))
        for row, token in enumerate(sentence):
            own = [known[f] for f in token] + [first, first + 1]
            table[row, own] = 1.0 if ones else rng.normal(size=len(own))
            first += 2
        X.append(table.tocsr())
    return X, y


def tagger(tol: float, **options: Any) -> SequenceTagger:
    return SequenceTagger(
        "logistic", C=1.0, tol=tol, max_iter=5000, random_state=0, pairs="all", **options
    )


@pytest.mark.parametrize("ones", [True, False])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5])
def test_certificates_of_both_precisions_enclose_the_optimum(ones: bool, l1_ratio: float) -> None:
    X, y = wide(250, ones=ones)
    options: dict[str, Any] = {"penalty": "elastic-net", "l1_ratio": l1_ratio}
    fine = tagger(1e-8, **options).fit(X, y)
    assert fine.converged_
    optimum = fine.objective_
    for tol in (1e-1, 1e-3, 2e-5):
        model = tagger(tol, **options).fit(X, y)
        assert model.converged_
        assert model.relative_gap_ <= tol
        assert model.dual_objective_ <= optimum
        assert fine.dual_objective_ <= model.objective_
        assert np.array_equal(model._weights.values, model._weights.values.astype(np.float32))
        w = np.concatenate([model._weights.values, model._weights.link_weights])
        penalty = l1_ratio * np.abs(w).sum() + (1.0 - l1_ratio) / 2.0 * (w @ w)
        objective = penalty / len(X) - model.log_probability(X, y).mean()
        assert model.objective_ == pytest.approx(objective, rel=1e-10)


@pytest.mark.parametrize("tol", [1e-2, 1e-7])
def test_fits_do_not_depend_on_the_threads(tol: float) -> None:
    X, y = wide(250, ones=False)
    models = [tagger(tol, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2, 3)]
    for model in models[1:]:
        assert np.array_equal(model._weights.values, models[0]._weights.values)
        assert model.duality_gap_ == models[0].duality_gap_
