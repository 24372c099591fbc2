"""Paths of taggers over C."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from sentences import score_label_sequences, sentences
from sklearn.exceptions import ConvergenceWarning

from dualgap.sequence import SequenceTagger

TOL = 0.1


def tagger(loss: str, **options: Any) -> SequenceTagger:
    return SequenceTagger(loss, **{"tol": TOL, "max_iter": 5000, "random_state": 0, **options})


def objective(model: SequenceTagger, X: list[Any], y: list[Any]) -> float:
    """Compute the objective by enumerating all label sequences."""
    weights = [model.emission_.data, model.transition_.values, model.boundary_.values]
    total = sum(float((values**2).sum()) for values in weights) / (2.0 * model.C * len(X))
    for x, right in zip(X, y, strict=True):
        every = score_label_sequences(model, x)
        own = next(score for score, label in every if label == right)
        if model.loss == "logistic":
            total += float(logsumexp([score for score, _ in every]) - own) / len(X)
        else:
            wrong = [sum(a != b for a, b in zip(label, right, strict=True)) for _, label in every]
            worst = max(s + w for (s, _), w in zip(every, wrong, strict=True))
            total += (worst - own) / len(X)
    return total


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
def test_every_tagger_of_a_path_is_within_the_gap_of_its_piece(loss: str) -> None:
    X, y = sentences(15)
    X, y = [x[:5] for x in X], [labels[:5] for labels in y]
    model = tagger(loss)
    pieces = model.path(X, y, 0.01, 1.0)
    assert not hasattr(model, "classes_")
    assert (pieces[0].C_min, pieces[-1].C_max) == (0.01, 1.0)
    assert all(a.C_max == b.C_min for a, b in itertools.pairwise(pieces))
    assert len(pieces) > 2
    for piece in pieces:
        assert piece.relative_gap <= TOL
        for share in (0.0, 0.4, 1.0):
            C = min(piece.C_min ** (1 - share) * piece.C_max**share, piece.C_max)
            own = piece.tagger(C)
            best = tagger(loss, C=C, tol=1e-2).fit(X, y)
            assert objective(best, X, y) == pytest.approx(best.objective_, rel=1e-9)
            # No objective is below the bound of the accurate fit.
            assert best.dual_objective_ <= objective(own, X, y) <= best.objective_ / (1 - TOL)
            assert own.predict(X) == piece.predict(X)
            assert own.score(X, y) == piece.score(X, y)
    with pytest.raises(ValueError, match=r"C: must be between .* got 20"):
        pieces[-1].tagger(20.0)


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
def test_paths_do_not_depend_on_threads_or_the_form_of_the_data(loss: str) -> None:
    X, y = sentences(80)
    lengths, flat = [len(x) for x in X], list(itertools.chain(*y))
    rows = np.random.default_rng(0).normal(size=(len(flat), 4))
    weights = np.arange(1, 81) / 40
    one, two = (
        tagger(loss, n_jobs=n, boundaries=False).path(
            rows, flat, 0.01, 1.0, weights, lengths=lengths
        )
        for n in (1, 2)
    )
    assert [p.C_max for p in one] == [p.C_max for p in two]
    assert [p.duality_gap for p in one] == [p.duality_gap for p in two]
    assert len(one[0].predict(rows, lengths=lengths)) == len(flat)


def test_a_path_that_does_not_converge_warns() -> None:
    X, y = sentences(40)
    with pytest.warns(ConvergenceWarning, match="a piece of the path stopped"):
        tagger("hamming", max_iter=1, tol=1e-4).path(X, y, 1.0, 1.1)
    for bounds, name in [((0.0, 1.0), "C_min"), ((2.0, 1.0), "C_max")]:
        with pytest.raises(ValueError, match=f"{name}: "):
            tagger("logistic").path(X, y, *bounds)
