"""L1 and elastic-net penalties of the logistic loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentences import sentences

from dualgap.sequence import SequenceTagger


def tagger(**options: Any) -> SequenceTagger:
    return SequenceTagger(
        "logistic", **{"C": 1.0, "tol": 1e-3, "max_iter": 5000, "random_state": 0, **options}
    )


def all_weights(model: SequenceTagger) -> np.ndarray:
    weights = model._weights
    return np.concatenate([weights.values, weights.link_weights, weights.edge_weights])


def elastic_net_penalty(model: SequenceTagger, n: int, l1_ratio: float) -> float:
    w = all_weights(model)
    penalty = l1_ratio * np.abs(w).sum() + (1.0 - l1_ratio) / 2.0 * (w @ w)
    return float(penalty) / (model.C_ * n)


@pytest.mark.parametrize("pairs", ["all", "seen"])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.3, 0.95, 1.0])
def test_the_certificate_encloses_the_optimum(pairs: str, l1_ratio: float) -> None:
    X, y = sentences(60)
    options = {"penalty": "elastic-net", "l1_ratio": l1_ratio, "pairs": pairs}
    model = tagger(**options).fit(X, y)
    assert model.converged_
    assert model.relative_gap_ <= 1e-3
    loss = -model.log_probability(X, y).mean()
    assert model.objective_ == pytest.approx(
        elastic_net_penalty(model, len(X), l1_ratio) + loss, rel=1e-10
    )
    for C in (0.3, 1.0, 3.0):
        other = tagger(C=C, pairs=pairs).fit(X, y)
        other.C_ = 1.0
        above = elastic_net_penalty(other, len(X), l1_ratio) - other.log_probability(X, y).mean()
        assert above >= model.dual_objective_
    same = {0.0: "l2", 1.0: "l1"}.get(l1_ratio)
    if same is not None:
        plain = tagger(penalty=same, pairs=pairs).fit(X, y)
        assert plain.objective_ == model.objective_


def test_l1_makes_most_weights_zero(tmp_path: Path) -> None:
    X, y = sentences(300)
    rng = np.random.default_rng(0)
    for sentence in X:
        for token in sentence:
            token.append(f"noise={rng.integers(300)}")
    sizes, scores = [], []
    for penalty in ("l2", "l1"):
        model = tagger(penalty=penalty, tol=None).fit(X[:200], y[:200])
        model.save(tmp_path / penalty)
        sizes.append(len(model._weights.values))
        scores.append(model.score(X[200:], y[200:]))
        loaded = SequenceTagger.load(tmp_path / penalty)
        assert loaded.penalty == penalty
        assert loaded.predict(X) == model.predict(X)
    assert sizes[1] < 0.3 * sizes[0]
    assert scores[1] > scores[0] - 0.02
    assert not all_weights(tagger(penalty="l1", C=1e-4).fit(X, y)).any()


def test_errors_name_unused_and_bad_parameters() -> None:
    X, y = sentences(10)
    with pytest.raises(ValueError, match="penalty: loss"):
        SequenceTagger(penalty="l1").fit(X, y)
    with pytest.raises(ValueError, match="l1_ratio: penalty"):
        tagger(penalty="l1", l1_ratio=0.3).fit(X, y)
    with pytest.raises(ValueError, match="penalty: must be"):
        tagger(penalty="L1").fit(X, y)
    with pytest.raises(ValueError, match="l1_ratio: must be"):
        tagger(penalty="elastic-net", l1_ratio=1.5).fit(X, y)
    with pytest.raises(ValueError, match="penalty: a path"):
        tagger(penalty="l1").path(X, y, 0.1, 1.0)
