"""Unknown labels, costs of the logistic loss, and probabilities of given labels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from sentences import score_label_sequences, sentences
from sklearn.exceptions import ConvergenceWarning

from dualgap.sequence import SequenceTagger
from dualgap.sequence.metrics import label_score


def tagger(loss: str = "logistic", **options: Any) -> SequenceTagger:
    return SequenceTagger(
        loss, **{"C": 1.0, "tol": 1e-6, "max_iter": 3000, "random_state": 0, **options}
    )


def objective(model: SequenceTagger, X: Any, y: Any, costs: Any = None) -> float:
    """Compute the objective of a conditional random field by enumeration of all labels."""
    weights = model._weights
    parts = (weights.values, weights.link_weights, weights.edge_weights)
    total = sum(float(part @ part) for part in parts) / (2.0 * model.C_ * len(X))
    for i, (x, right) in enumerate(zip(X, y, strict=True)):
        logs = []
        for score, labels in score_label_sequences(model, x):
            cost_of = costs[i] if costs else [1.0] * len(labels)
            own = zip(labels, right, cost_of, strict=True)
            wrong = [cost for a, b, cost in own if b is not None and a != b]
            logs.append((score + float(np.log(wrong).sum()), not wrong))
        agreeing = logsumexp([score for score, agrees in logs if agrees])
        total += (logsumexp([score for score, _ in logs]) - agreeing) / len(X)
    return total


def hide_labels(y: list[list[str]], share: float, seed: int = 1) -> list[list[str | None]]:
    rng = np.random.default_rng(seed)
    return [[None if rng.random() < share else label for label in labels] for labels in y]


@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_costs_multiply_the_probabilities_of_wrong_labels(pairs: str) -> None:
    X, y = sentences(30)
    rng = np.random.default_rng(0)
    costs = [rng.uniform(0.1, 4.0, len(labels)).tolist() for labels in y]
    model = tagger(pairs=pairs).fit(X, y, token_weight=costs)
    assert model.objective_ == pytest.approx(objective(model, X, y, costs), rel=1e-9)
    assert model.converged_
    for other in (tagger(C=0.3, pairs=pairs), tagger(pairs=pairs, max_iter=3)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            other.fit(X, y)
        other.C_ = 1.0
        # No model has an objective below the bound.
        assert objective(other, X, y, costs) >= model.dual_objective_
    weighted = {"O": 3.0}
    own = [[weighted.get(label, 1.0) for label in labels] for labels in y]
    by_class = tagger(pairs=pairs, class_weight=weighted).fit(X, y)
    assert by_class.objective_ == tagger(pairs=pairs).fit(X, y, token_weight=own).objective_


def test_sentences_whose_tokens_cost_zero_have_no_loss() -> None:
    X, y = sentences(40)
    costs = [[0.0] * len(labels) if i % 2 else [1.0] * len(labels) for i, labels in enumerate(y)]
    model = tagger(pairs="all").fit(X, y, token_weight=costs)
    half = tagger(pairs="all").fit(X[::2], y[::2])
    assert model.converged_
    assert 2.0 * model.objective_ == pytest.approx(half.objective_, rel=1e-5)


def test_class_weights_trade_precision_for_recall() -> None:
    X, y = sentences(300, noise=0.6)
    counts = []
    for weight in (0.2, 1.0, 5.0):
        model = tagger(class_weight={"O": weight}, tol=1e-3).fit(X[:200], y[:200])
        counts.append(sum(labels.count("O") for labels in model.predict(X[200:])))
    assert counts[0] < counts[1] < counts[2]


def test_the_objective_of_partial_labels_equals_an_enumeration() -> None:
    X, y = sentences(30)
    partial = hide_labels(y, 0.4)
    model = tagger().fit(X, partial)
    assert model.objective_ == pytest.approx(objective(model, X, partial), rel=1e-9)
    assert model.certificate_.startswith("none")
    assert np.isnan(model.dual_objective_)
    assert np.isnan(model.duality_gap_)
    assert not model.converged_
    assert model.objective_ < 0.5 * model.null_objective_
    costs = [[2.0] * len(labels) for labels in y]
    model = tagger().fit(X, partial, token_weight=costs)
    assert model.objective_ == pytest.approx(objective(model, X, partial, costs), rel=1e-9)


def test_a_small_tol_leads_to_a_stationary_point_of_partial_labels() -> None:
    X, y = sentences(60, noise=0.5)
    partial = hide_labels(y, 0.4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = tagger(C=3.0, tol=1e-10).fit(X, partial)
        default = tagger(C=3.0, tol=None).fit(X, partial)
    assert default.n_iter_ < model.n_iter_
    assert default.objective_ == pytest.approx(model.objective_, rel=2e-3)
    # At a stationary point, each weight is C times the missing expected count of its feature.
    free, given = model.predict_marginals(X), model.predict_marginals(X, known=partial)
    expected = dict.fromkeys(model.state_features_, 0.0)
    for x, p, q in zip(X, free, given, strict=True):
        for token, row in zip(x, q - p, strict=True):
            for key in expected.keys() & {(n, c) for n in token for c in model.classes_.tolist()}:
                expected[key] += 3.0 * row[model.classes_.tolist().index(key[1])]
    assert expected
    for key, weight in model.state_features_.items():
        assert weight == pytest.approx(expected[key], abs=1e-3)
    with pytest.warns(ConvergenceWarning, match="stopped after 3 passes.*max_iter"):
        tagger(tol=1e-10, max_iter=3).fit(X, partial)


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
@pytest.mark.parametrize("options", [{}, {"pairs": "seen", "transitions": "bio"}])
def test_partial_labels_reach_nearly_the_accuracy_of_all_labels(loss: str, options: Any) -> None:
    X, y = sentences(400)
    options = {"tol": 0.01, **options}
    partial = hide_labels(y[:300], 0.6)
    model = tagger(loss, **options).fit(X[:300], partial)
    full = tagger(loss, **options).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > full.score(X[300:], y[300:]) - 0.05
    assert model.certificate_.startswith("none")
    known = [[label is not None for label in labels] for labels in partial]
    assert not all(map(all, known))
    assert model.classes_.tolist() == full.classes_.tolist()


def test_every_form_of_partial_labels_is_accepted() -> None:
    X, y = sentences(30)
    numbers = {"B-NP": 0, "I-NP": 1, "O": 2, None: None}
    partial = hide_labels(y, 0.3)
    coded = [[numbers[label] for label in labels] for labels in partial]
    model, other = tagger().fit(X, partial), tagger().fit(X, coded)
    assert [[numbers[label] for label in labels] for labels in model.predict(X)] == other.predict(X)
    rows = [np.eye(3)[[len(token) for token in sentence]] for sentence in X]
    lengths = [len(labels) for labels in y]
    flat = [label for labels in partial for label in labels]
    stacked = tagger().fit(np.concatenate(rows), flat, lengths=lengths)
    assert stacked.objective_ == tagger().fit(rows, partial).objective_
    assert tagger("hamming", tol=0.1).fit(X, coded).predict(X)[0][0] in {0, 1, 2}
    for nothing in ([[None] * len(labels) for labels in y],):
        with pytest.raises(ValueError, match="y: all labels are None"):
            tagger().fit(X, nothing)
    with pytest.raises(ValueError, match=r"y: label \d of sentence \d+ is None"):
        model.score(X, partial)
    with pytest.raises(ValueError, match="path needs all labels"):
        tagger().path(X, partial, 0.1, 1.0)
    bad = [list(labels) for labels in partial]
    bad[3] = [None] * len(bad[3])
    bad[3][0] = "I-NP"
    for loss in ("hamming", "logistic"):
        with pytest.raises(ValueError, match="forbid"):
            tagger(loss, transitions="bio").fit(X, bad)


def test_log_probabilities_agree_with_enumeration() -> None:
    X, y = sentences(20)
    model = tagger(transitions="bio", tol=0.01).fit(X, y)
    found = model.log_probability([*X, []], [*y, []])
    for x, labels, log in zip(X, y, found, strict=False):
        every = score_label_sequences(model, x)
        own = next(score for score, other in every if other == labels)
        assert log == pytest.approx(own - logsumexp([score for score, _ in every]), abs=1e-9)
    assert found[-1] == 0.0
    assert model.log_probability(X[:1], [["?"] * len(X[0])]).tolist() == [-np.inf]
    assert model.log_probability(X[:1], [["I-NP"] * len(X[0])]).tolist() == [-np.inf]
    with pytest.raises(ValueError, match=r"^loss: tokens have probabilities with loss="):
        tagger("hamming", tol=0.1).fit(X, y).log_probability(X, y)


def test_unknown_labels_with_held_out_sentences_fit_the_given_loss() -> None:
    X, y = sentences(200, noise=0.5)
    held = (X[150:], y[150:])
    partial = hide_labels(y[:150], 0.4)
    model = SequenceTagger("hamming", random_state=0).fit(X[:150], partial, validation=held)
    assert np.isfinite(model.dual_objective_)
    scores = model.history_["validation_score"]
    assert label_score(y[150:], model.predict(X[150:])) == np.nanmax(scores)
    partly = SequenceTagger("hamming", random_state=0)
    assert np.isfinite(partly.fit(X, [*partial, *y[150:]], validation=0.1).dual_objective_)


def test_c_is_chosen_with_the_loss_that_is_fitted_to_unknown_labels() -> None:
    X, y = sentences(100, noise=0.5)
    partial = [*hide_labels(y[:50], 0.4), *y[50:]]
    given = np.array([0.1, 1.0])
    model = SequenceTagger("hamming", random_state=0)
    for C, fitted in zip(given, model.fits(X, partial, given), strict=True):
        alone = SequenceTagger("hamming", C=C, random_state=0).fit(X, partial)
        assert fitted.objective_ == alone.objective_
        assert np.isfinite(fitted.dual_objective_)


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
def test_a_warm_start_with_unknown_labels_continues_or_warns(loss: str) -> None:
    X, y = sentences(80)
    partial = hide_labels(y, 0.4)
    model = tagger(loss, tol=0.1, warm_start=True, max_iter=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first = model.fit(X, partial).objective_
        cold = tagger(loss, tol=0.1, max_iter=3).fit(X, partial)
        assert first == cold.objective_
        again = model.fit(X, partial).objective_
        assert again != first if loss == "hamming" else again < first
        # Dual variables of completed labels would give a wrong bound for the true labels.
        if loss == "hamming":
            with pytest.warns(UserWarning, match="^warm_start: "):
                model.fit(X, y)
            assert model.dual_objective_ <= model.objective_
            model.fit(X, partial)
        with pytest.warns(UserWarning, match="^warm_start: .* features differs"):
            model.fit([np.eye(len(x), 8) for x in X], partial)
