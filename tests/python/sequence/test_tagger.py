from __future__ import annotations

import contextlib
import copy
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import logsumexp
from sentences import score_label_sequences, sentences
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from dualgap.sequence import SequenceTagger
from dualgap.sequence._file import packed_weights

LOSSES = ["hamming", "logistic"]


def tagger(loss: str = "hamming", **options: Any) -> SequenceTagger:
    return SequenceTagger(
        loss, **{"C": 1.0, "tol": 0.05, "max_iter": 5000, "random_state": 0, **options}
    )


def as_matrices(X: list[Any], names: list[str]) -> list[Any]:
    place = {name: column for column, name in enumerate(names)}
    found = []
    for tokens in X:
        matrix = np.zeros((len(tokens), len(names)))
        for t, token in enumerate(tokens):
            for name in token:
                matrix[t, place[name]] += 1
        found.append(matrix)
    return found


def names_of(X: list[Any]) -> list[str]:
    return list(dict.fromkeys(name for tokens in X for token in tokens for name in token))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("transitions", ["all", "bio"])
def test_predictions_equal_those_by_enumeration(loss: str, transitions: str) -> None:
    X, y = sentences(60)
    model = tagger(loss, transitions=transitions).fit(X, y)
    test = [x[:5] for x in sentences(20, seed=1)[0]]
    predicted, ranked = model.predict(test), model.predict_top_k(test, 7)
    marginals = model.predict_marginals(test)
    if loss == "hamming":
        assert all((marginal.max(axis=1) == 0).all() for marginal in marginals)
    for x, label, best, marginal in zip(test, predicted, ranked, marginals, strict=True):
        every = [pair for pair in score_label_sequences(model, x) if pair[0] > -np.inf]
        scores = np.array([score for score, _ in every])
        assert best[0][0] == label
        shift = logsumexp(scores) if loss == "logistic" else 0.0
        expected = scores[:7] - shift
        np.testing.assert_allclose([score for _, score in best], expected, atol=1e-9)
        assert all(contains_label(every, found) for found, _ in best)
        for t, k in np.ndindex(marginal.shape):
            own = [s for s, z in every if z[t] == model.classes_[k]]
            if loss == "logistic":
                value = np.exp(logsumexp(own) - shift) if own else 0.0
                assert marginal[t, k] == pytest.approx(value, abs=1e-9)
            else:
                value = max(own) - scores[0] if own else -np.inf
                assert marginal[t, k] == pytest.approx(value, abs=1e-9)


def contains_label(every: list[tuple[float, list[Any]]], label: list[Any]) -> bool:
    return any(label == other for _, other in every)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_the_certificate_encloses_the_optimum(loss: str, pairs: str) -> None:
    X, y = sentences(40)
    loose = tagger(loss, pairs=pairs, tol=0.3).fit(X, y)
    tol = {"hamming": 2e-2, "logistic": 1e-8}[loss]
    tight = tagger(loss, pairs=pairs, tol=tol, max_iter=50000).fit(X, y)
    assert tight.converged_
    assert tight.relative_gap_ <= tol
    assert loose.dual_objective_ <= tight.objective_ * (1 + 1e-12)
    assert tight.dual_objective_ <= loose.objective_
    assert tight.certificate_ == "convex optimum"
    assert tight.null_objective_ > tight.objective_


def test_the_logistic_optimum_agrees_with_a_generic_optimiser() -> None:
    X, y = sentences(6)
    names, classes = names_of(X), ["B-NP", "I-NP", "O"]
    rows, k = as_matrices(X, names), len(classes)
    codes = [[classes.index(label) for label in labels] for labels in y]
    log_sum = np.logaddexp.reduce  # For three numbers, scipy's `logsumexp` is much slower.

    def objective(w: np.ndarray) -> float:
        cut = np.cumsum([len(names) * k, k * k, k])
        W, T, first, last = np.split(w, cut)
        W, T = W.reshape(-1, k), T.reshape(k, k)
        total = 0.0
        for x, label in zip(rows, codes, strict=True):
            nodes = x @ W
            nodes[0] += first
            nodes[-1] += last
            forward, right = nodes[0], nodes[0, label[0]]
            for t in range(1, len(x)):
                forward = log_sum(forward[:, None] + T, axis=0) + nodes[t]
                right += T[label[t - 1], label[t]] + nodes[t, label[t]]
            total += log_sum(forward) - right
        return float(0.5 * w @ w / (2.0 * len(X)) + total / len(X))

    best = minimize(objective, np.zeros(len(names) * k + k * k + 2 * k), method="L-BFGS-B")
    model = tagger("logistic", C=2.0, pairs="all", tol=1e-8, max_iter=1000).fit(X, y)
    assert model.dual_objective_ <= best.fun
    assert model.objective_ == pytest.approx(best.fun, rel=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_form_of_input_gives_the_same_problem(loss: str) -> None:
    X, y = sentences(50)
    names = names_of(X)
    matrices = as_matrices(X, names)
    model = tagger(loss).fit(X, y)
    dicts = [[dict.fromkeys(token, True) for token in x] for x in X]
    pairs = [[dict(name.split("=") for name in token) for token in x] for x in X]
    lengths = [len(x) for x in X]
    stacked, flat = np.concatenate(matrices), np.concatenate(y)
    others = [
        (tagger(loss).fit(dicts, y), dicts),
        (tagger(loss).fit(pairs, y), pairs),
        (tagger(loss).fit((x for x in X), iter(y)), X),
        (tagger(loss).fit(matrices, y), matrices),
        (tagger(loss).fit([sp.csr_array(x) for x in matrices], y), matrices),
    ]
    for other, data in others:
        assert other.objective_ == model.objective_
        assert other.predict(data) == model.predict(X)
    one = tagger(loss).fit(sp.csr_array(stacked), flat, lengths=lengths)
    assert one.objective_ == model.objective_
    assert one.predict(stacked, lengths=lengths).tolist() == list(
        itertools.chain(*model.predict(X))
    )
    assert one.score(stacked, flat, lengths=lengths) == model.score(X, y)
    assert model.predict(x for x in X) == model.predict(X)


def test_nested_repeated_and_numeric_features_are_read() -> None:
    X = [[{"a": {"b": "c", "d": 2}, "e": ["f", "g"], "h": 0.5, "i": False}, ["j", "j"]]]
    model = tagger().fit(X, [["x", "y"]])
    names = {"a:b=c", "a:d", "e:f", "e:g", "h", "j"}
    assert set(model.feature_names_ or []) == names
    same = [[["a:b=c", "a:d", "a:d", "e:f", "e:g", "h"], ["j", "j", "unknown"]]]
    assert model.predict(same) == [["x", "y"]]
    contributions = dict(model.explain(X[0])[0].features)
    weights = dict(
        zip(model.feature_names_ or [], model.emission_[:, [0]].toarray()[:, 0], strict=True)
    )
    assert contributions["a:d"] == pytest.approx(2 * weights["a:d"])
    assert contributions["h"] == pytest.approx(0.5 * weights["h"])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_the_model_does_not_depend_on_the_threads(loss: str, pairs: str) -> None:
    X, y = sentences(300)
    models = [tagger(loss, pairs=pairs, n_jobs=n, tol=1e-2).fit(X, y) for n in (1, 2, 3)]
    for model in models[1:]:
        assert np.array_equal(model.emission_.data, models[0].emission_.data)
        assert np.array_equal(model.emission_.indices, models[0].emission_.indices)
        assert np.array_equal(np.asarray(model.transition_), np.asarray(models[0].transition_))
        assert model.duality_gap_ == models[0].duality_gap_


def test_schemes_forbid_transitions_and_reject_labels() -> None:
    X, y = sentences(80)
    model = tagger(transitions="bio").fit(X, y)
    assert model.transition_["O", "I-NP"] == -np.inf
    assert model.boundary_["start", "I-NP"] == -np.inf
    unknown = [[["?"]] * 6] * 3
    for labels in model.predict([*unknown, *X]):
        for before, after in itertools.pairwise(["O", *labels]):
            assert not (after == "I-NP" and before == "O")
    y[3] = ["I-NP"] * len(y[3])
    with pytest.raises(
        ValueError,
        match=r"^y: `transitions` .* 1 of 80 sentences: sentence 3 has I-NP at the beginning",
    ):
        tagger(transitions="bio").fit(X, y)
    with pytest.raises(ValueError, match=r"^transitions: 'x' is not a label"):
        tagger(transitions="bio").fit(X, [["x"] * len(labels) for labels in y])


def test_schemes_masks_and_pairs_of_labels_restrict_transitions() -> None:
    X = [[["a"], ["b"], ["c"], ["d"]], [["d"]], [["e"]]]
    y = [["B-X", "I-X", "E-X", "O"], ["O"], ["S-X"]]
    model = tagger(transitions="bioes").fit(X, y)
    table = np.isfinite(np.asarray(model.transition_))
    # The order is B, E, I, O, S. A chunk continues after B and I, but not after E, O and S.
    inside, outside = [0, 1, 1, 0, 0], [1, 0, 0, 1, 1]
    assert table.tolist() == [
        list(map(bool, row)) for row in (inside, outside, inside, outside, outside)
    ]
    assert np.isfinite(np.asarray(model.boundary_)).tolist() == [
        [True, False, False, True, True],
        [False, True, False, True, True],
    ]
    allowed = {(a, b) for a in model.classes_ for b in model.classes_ if (a, b) != ("O", "S-X")}
    masked = tagger(transitions=allowed).fit(X, y)
    assert masked.transition_["O", "S-X"] == -np.inf
    mask = np.ones((5, 5), dtype=bool)
    mask[3, 4] = False
    assert masked.objective_ == tagger(transitions=mask).fit(X, y).objective_
    nowhere = tagger(transitions={("a", "b")}).fit([[["x"], ["y"]]], [["a", "b"]])
    with pytest.raises(ValueError, match="forbid all labels"):
        nowhere.predict([[["x"]] * 3])


@pytest.mark.parametrize("loss", LOSSES)
def test_only_seen_pairs_have_weights(loss: str) -> None:
    X, y = sentences(60)
    model = tagger(loss, pairs="seen", transitions="seen", boundaries=False).fit(X, y)
    seen = {
        (f, label)
        for x, labels in zip(X, y, strict=True)
        for token, label in zip(x, labels, strict=True)
        for f in token
    }
    rows, columns = model.emission_.nonzero()
    names = model.feature_names_ or []
    assert {(names[i], model.classes_[j]) for i, j in zip(rows, columns, strict=True)} <= seen
    assert model.transition_["O", "I-NP"] == 0.0
    assert not np.asarray(model.boundary_).any()


def test_transition_features_learn_when_labels_change() -> None:
    # A mark on a token shows whether the label changes, but no token determines its label alone.
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(100):
        marks = rng.integers(0, 2, 6)
        labels = [0]
        for mark in marks[1:]:
            labels.append(int(labels[-1] ^ mark))
        X.append(
            [[f"T{mark}", "bias", *(["first"] if t == 0 else [])] for t, mark in enumerate(marks)]
        )
        y.append([f"l{label}" for label in labels])
    for loss in LOSSES:
        plain = tagger(loss).fit(X, y)
        model = tagger(loss, transition_features=["T"]).fit(X, y)
        assert model.score(X, y) == 1.0 > plain.score(X, y)
        matrices = as_matrices(X, names := names_of(X))
        columns = [names.index("T0"), names.index("T1")]
        same = tagger(loss, transition_features=columns).fit(matrices, y)
        assert same.objective_ == pytest.approx(model.objective_, rel=1e-3)
        assert same.predict(matrices) == model.predict(X) == y
        evidence = model.explain(X[0])
        total = sum(
            sum(share for _, share in token.features) + token.transition for token in evidence
        )
        if loss == "hamming":
            assert total == pytest.approx(model.predict_top_k(X[:1], 1)[0][0][1])


def test_class_token_and_sample_weights_multiply_costs() -> None:
    X, y = sentences(60)
    costly = tagger(class_weight={"O": 4.0}).fit(X, y)
    weights = [[4.0 if label == "O" else 1.0 for label in labels] for labels in y]
    assert tagger().fit(X, y, token_weight=weights).objective_ == costly.objective_
    # At w = 0, all label sequences have equal scores, so the loss counts all tokens as wrong.
    assert costly.null_objective_ == pytest.approx(sum(map(sum, weights)) / len(y))
    both = tagger(class_weight={"O": 4.0}).fit(X, y, token_weight=weights)
    squared = sum(weight**2 for row in weights for weight in row)
    assert both.null_objective_ == pytest.approx(squared / len(y))
    twice = tagger().fit(X + X[:10], y + y[:10])
    counted = tagger().fit(X, y, sample_weight=[2.0] * 10 + [1.0] * 50)
    assert twice.dual_objective_ <= counted.objective_ * 1.0001
    assert counted.dual_objective_ <= twice.objective_ * 1.0001


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("options", [{}, {"hash_bits": 12}, {"transition_features": ["before="]}])
def test_files_and_pickles_restore_the_model(
    tmp_path: Path, loss: str, options: dict[str, Any]
) -> None:
    X, y = sentences(60)
    model = tagger(loss, transitions="bio", **options).fit(X, y)
    model.save(tmp_path / "model.npz")
    for other in (SequenceTagger.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))):
        assert other.predict(X) == model.predict(X)
        assert other.predict_top_k(X[:3], 3) == model.predict_top_k(X[:3], 3)
        assert (other.loss, other.duality_gap_) == (loss, model.duality_gap_)
        assert other.feature_names_ == model.feature_names_
    data = bytearray((tmp_path / "model.npz").read_bytes())
    for at in range(0, len(data), 97):
        damaged = bytes(data[:at]) + bytes([data[at] ^ 255]) + bytes(data[at + 1 :])
        (tmp_path / "bad.npz").write_bytes(damaged)
        with contextlib.suppress(ValueError):
            SequenceTagger.load(tmp_path / "bad.npz").predict(X[:2])


@pytest.mark.parametrize("loss", LOSSES)
def test_a_warm_start_continues_from_the_last_fit(loss: str) -> None:
    X, y = sentences(100)
    model = tagger(loss, warm_start=True).fit(X, y)
    first = model.n_iter_
    model.C = 1.1
    model.fit(X, y)
    cold = tagger(loss, C=1.1).fit(X, y)
    assert model.dual_objective_ <= cold.objective_
    assert cold.dual_objective_ <= model.objective_
    assert model.n_iter_ < first
    model.fit(X[:7], y[:7])
    assert model.converged_


def test_a_warm_start_recognises_sentences_by_their_content() -> None:
    X, y = sentences(220)
    model = tagger(warm_start=True, tol=1e-3).fit(X[:200], y[:200])
    # The second fit has another order, other sentences, new features and new columns.
    order = np.random.default_rng(0).permutation(220)
    own = [[*X[i], ["new"]] if i >= 210 else X[i] for i in order]
    labels = [[*y[i], "B-VP"] if i >= 210 else y[i] for i in order]
    model.max_iter = 3
    cold = tagger(tol=1e-3, max_iter=3)
    for fitted in (model, cold):
        with pytest.warns(ConvergenceWarning):
            fitted.fit(own, labels)
    assert model.duality_gap_ < 0.3 * cold.duality_gap_
    tight = tagger(tol=1e-3).fit(own, labels)
    assert model.dual_objective_ <= tight.objective_
    assert tight.dual_objective_ <= model.objective_
    with pytest.warns(UserWarning, match="warm_start: .* no sentence"):
        tagger(warm_start=True).fit(X[:5], y[:5]).fit(X[100:110], y[100:110])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_keeps_the_warm_start(loss: str, copied: Any) -> None:
    X, y = sentences(100)
    model = tagger(loss, warm_start=True).fit(X, y)
    other = copied(model)
    assert other.predict(X) == model.predict(X)
    # The fit of the copy gives the model of a second fit of the original, and does not change the
    # original.
    assert other.fit(X, y).n_iter_ < model.n_iter_
    assert model.fit(X, y).objective_ == other.objective_


@pytest.mark.parametrize("loss", LOSSES)
def test_usual_tolerances_give_models_in_single_precision(loss: str, tmp_path: Path) -> None:
    X, y = sentences(100)
    kinds = []
    for tol in (1e-2, 1e-7):
        model = tagger(loss, C=0.1, tol=tol).fit(X, y)
        assert model.converged_
        model.save(tmp_path / "model.npz")
        same = SequenceTagger.load(tmp_path / "model.npz")
        assert np.array_equal(same._weights.values, model._weights.values)
        kinds.append(packed_weights(model._weights)["values"].dtype)
    assert kinds == [np.float32, np.float64]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_warm_start_matches_labels_by_name(loss: str) -> None:
    X, y = sentences(100)
    model = tagger(loss, warm_start=True).fit(X, y)
    others = [list(labels) for labels in y]
    # The new label is the first, so the indices of all other labels change.
    others[0][0] = "!"
    model.fit(X, others)
    cold = tagger(loss).fit(X, others)
    assert model.classes_.tolist() == cold.classes_.tolist()
    assert model.classes_[0] == "!"
    first = [np.nanmin(fitted.history_["gap"][:2]) for fitted in (model, cold)]
    assert first[0] < 0.5 * first[1]
    renamed = [[f"new-{label}" for label in labels] for labels in y]
    if loss == "hamming":
        with pytest.warns(UserWarning, match="warm_start: .* no sentence"):
            model.fit(X, renamed)
    assert model.converged_


def test_a_grid_search_selects_the_better_c() -> None:
    X, y = sentences(60)
    search = GridSearchCV(tagger(), {"C": [1e-4, 0.1]}, cv=3).fit(X, y)
    assert search.best_params_ == {"C": 0.1}
    assert search.best_estimator_.score(X, y) > 0.9


def test_rare_features_can_be_dropped_and_features_hashed() -> None:
    X, y = sentences(60)
    X[0][0] = [*X[0][0], "once"]
    assert "once" in (tagger().fit(X, y).feature_names_ or [])
    model = tagger(min_count=2).fit(X, y)
    assert "once" not in (model.feature_names_ or [])
    hashed = tagger(hash_bits=16).fit(X, y)
    assert hashed.feature_names_ is None
    assert hashed.score(X, y) == pytest.approx(model.score(X, y), abs=0.02)


def test_errors_name_the_bad_argument() -> None:
    X, y = sentences(5)
    cases: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
        ("loss", {"loss": "hinge"}, (X, y)),
        ("C", {"C": 0.0}, (X, y)),
        ("pairs", {"pairs": "some"}, (X, y)),
        ("transitions", {"transitions": "bilou"}, (X, y)),
        ("transitions", {"transitions": np.ones((2, 2))}, (X, y)),
        ("transitions", {"transitions": {("a", "b")}}, (X, y)),
        ("class_weight", {"class_weight": {"Z": 1.0}}, (X, y)),
        ("hash_bits", {"hash_bits": 31}, (X, y)),
        ("sampling", {"sampling": "all"}, (X, y)),
        ("y", {}, (X, y[:4])),
        ("y", {}, (X, [*y[:4], ["O"] * 30])),
        ("y", {}, (X, None)),
        ("y", {}, ([[]], [[]])),
        ("X", {}, ([], [])),
        ("X", {}, ("text", y)),
        ("X", {}, ([["token"]], [["O"]])),
        ("X", {}, ([[["a"], [1, 2]]], [["O", "O"]])),
        ("X: sentence 0, token 0", {}, ([[{"a": None}]], [["O"]])),
        ("X: sentence 0, token 0", {}, ([[{"a": float("nan")}]], [["O"]])),
        ("lengths", {}, (np.ones((3, 2)), ["O"] * 3)),
        ("sample_weight", {}, (X, y, [1.0])),
        ("transition_features", {"transition_features": [1.5]}, (X, y)),
    ]
    for name, options, arguments in cases:
        with pytest.raises(ValueError, match=f"^{name}"):
            tagger(**options).fit(*arguments)
    model = tagger().fit(X, y)
    with pytest.raises(ValueError, match=r"^X: the tagger was trained on named features"):
        model.predict([np.ones((2, 2))])
    with pytest.raises(ValueError, match=r"^k: "):
        model.predict_top_k(X, 0)
    with pytest.raises(ValueError, match="does not use it"):
        tagger("logistic", sampling="gap").fit(X, y)


def test_empty_sentences_have_empty_predictions() -> None:
    X, y = sentences(20)
    model = tagger().fit([*X, []], [*y, []])
    assert model.predict([[], X[0], []]) == [[], model.predict(X[:1])[0], []]
    assert model.predict([]) == []
    assert model.predict_top_k([[]], 3) == [[([], 0.0)]]


def test_labels_may_be_integers() -> None:
    X, y = sentences(60)
    codes = [[len(label) for label in labels] for labels in y]
    model = tagger(sampling="gap").fit(X, codes)
    assert set(model.classes_.tolist()) == {1, 4}
    assert all(isinstance(label, int) for labels in model.predict(X) for label in labels)


def test_a_callback_stops_the_fit() -> None:
    X, y = sentences(30)
    for loss in LOSSES:
        model = tagger(loss, tol=0.0, callback=lambda epoch, *_: epoch == 3).fit(X, y)
        assert (model.n_iter_, model.converged_) == (3, False)


def test_explanations_sum_to_the_score() -> None:
    X, y = sentences(60)
    model = tagger().fit(X, y)
    labels = model.predict(X[:1])[0]
    evidence = model.explain(X[0])
    assert [token.label for token in evidence] == labels
    total = sum(sum(share for _, share in token.features) + token.transition for token in evidence)
    assert total == pytest.approx(model.predict_top_k(X[:1], 1)[0][0][1])
    shares = [share for _, share in evidence[0].features]
    assert shares == sorted(shares, reverse=True)
    assert [token.label for token in model.explain(X[0], ["O"] * len(X[0]))] == ["O"] * len(X[0])
    with pytest.raises(ValueError, match=r"^labels: "):
        model.explain(X[0], ["?"])
