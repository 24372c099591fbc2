"""Structured models as scikit-learn objects, their pickles, and predictions by pieces of a path."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from dualgap.structured import (
    ChainModel,
    MatchingModel,
    MulticlassModel,
    MultilabelModel,
    StructuredSVM,
)


def chains(n=40, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(n):
        codes = np.cumsum(rng.integers(0, 2, rng.integers(1, 7))) % 3
        x = 0.4 * rng.standard_normal((len(codes), n_features))
        x[np.arange(len(codes)), codes] += 1
        X.append(x)
        Y.append([str(code) for code in codes])
    return X, Y


@pytest.mark.parametrize(
    "model",
    [
        ChainModel(boundaries=True, loss="mean-hamming"),
        MatchingModel(2.0, max_links=(1, 2)),
        MulticlassModel(costs=1 - np.eye(3)),
        MultilabelModel(edges=[(0, 1)], loss="hamming"),
    ],
)
def test_models_have_parameters_and_can_be_cloned(model):
    copy = clone(model)
    assert copy is not model
    assert type(copy) is type(model)
    assert str(copy.get_params()) == str(model.get_params())
    svm = StructuredSVM(model)
    name = next(iter(model.get_params()))
    value = svm.get_params()[f"model__{name}"]
    assert str(value) == str(model.get_params()[name])
    assert type(model).__name__ in repr(svm)


def test_parameters_of_a_model_can_be_searched():
    X, Y = chains()
    search = GridSearchCV(
        StructuredSVM(ChainModel(), random_state=0),
        {"model__boundaries": [False, True], "C": [0.1, 1.0]},
        cv=2,
        error_score="raise",
    )
    X, Y = np.array(X, dtype=object), np.array(Y, dtype=object)
    search.fit(X, Y)
    assert len(search.cv_results_["params"]) == 4
    bounded = search.best_params_["model__boundaries"]
    assert ("start" in search.best_estimator_.parameters_) == bounded


def test_set_params_does_not_change_the_fitted_model():
    X, Y = chains()
    svm = StructuredSVM(ChainModel(), random_state=0).fit(X, Y)
    before = svm.predict(X)
    svm.set_params(model__boundaries=True)
    assert "start" not in svm.parameters_
    for one, two in zip(before, svm.predict(X), strict=True):
        np.testing.assert_array_equal(one, two)
    assert "start" in svm.fit(X, Y).parameters_


def test_models_that_predict_classes_have_the_attribute_classes():
    X, Y = chains()
    svm = StructuredSVM(ChainModel(), random_state=0).fit(X, Y)
    assert svm.classes_.tolist() == ["0", "1", "2"]
    svm.set_params(model=MultilabelModel()).fit(np.eye(3), np.eye(3, dtype=int))
    assert not hasattr(svm, "classes_")
    svm.set_params(model=MulticlassModel()).fit(np.eye(3), ["b", "a", "c"])
    assert svm.classes_.tolist() == ["a", "b", "c"]


def test_a_pickle_is_as_large_as_the_weights():
    X, Y = chains(n_features=5000)
    svm = StructuredSVM(ChainModel(), C=1e-3, warm_start=True, random_state=0).fit(X, Y)
    size = len(pickle.dumps(svm))
    history = sum(column.nbytes for column in svm.history_.values())
    assert size <= svm.coef_.nbytes + history + 4096
    copy = pickle.loads(pickle.dumps(svm))
    for name, values in svm.parameters_.items():
        np.testing.assert_array_equal(copy.parameters_[name], values)
    np.testing.assert_array_equal(copy.fit(X, Y).coef_, clone(svm).fit(X, Y).coef_)


def test_pieces_of_a_path_can_predict():
    X, Y = chains()
    svm = StructuredSVM(ChainModel(), step="pairwise", tol=0.02, random_state=0)
    for piece in svm.path(X, Y, 0.01, 1.0):
        fit = clone(svm).fit(X, Y)
        for C in (piece.C_min, piece.C_max):
            fit.coef_ = piece.coef_at(C)
            assert piece.score(X, Y) == fit.score(X, Y)
            for one, two in zip(piece.predict(X), fit.predict(X), strict=True):
                np.testing.assert_array_equal(one, two)
        copy = pickle.loads(pickle.dumps(piece))
        assert copy.score(X, Y, np.arange(len(X))) == piece.score(X, Y, np.arange(len(X)))


@pytest.mark.parametrize("edges", ["full", "tree"])
def test_the_extragradient_method_trains_label_sets(edges):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    Y = (X @ rng.standard_normal((4, 5)) + 0.2 * rng.standard_normal((60, 5)) > 0).astype(int)
    model = MultilabelModel(edges=edges)
    fit = {"radius": 1.0, "tol": 0.02, "max_iter": 4000}
    svm = StructuredSVM(model, solver="extragradient", **fit).fit(X, Y)
    assert svm.converged_
    assert np.linalg.norm(svm.coef_) <= 1.0 + 1e-9
    # The loss of a regularised optimum inside the ball is not below the loss of the optimum over
    # the ball.
    other = StructuredSVM(model, C=0.02, tol=1e-3, random_state=0).fit(X, Y)
    assert np.linalg.norm(other.coef_) <= 1.0
    loss = other.objective_ - 0.5 * other.coef_ @ other.coef_ / (0.02 * 60)
    assert svm.dual_objective_ <= loss
    with pytest.raises(ValueError, match=r"projection: .*Euclidean"):
        StructuredSVM(model, solver="extragradient", projection="euclidean").fit(X, Y)


def test_predicted_labels_of_rows_are_an_array():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 4))
    y = (X @ rng.standard_normal((4, 5)) > 0).astype(int)
    sets = StructuredSVM(MultilabelModel(), C=0.1, random_state=0).fit(X, y)
    signs = np.array(["-", "+"])[y[:, 0]]
    classes = StructuredSVM(MulticlassModel(), C=0.1, random_state=0).fit(X, signs)
    for svm, shape in ((sets, (5,)), (classes, ())):
        assert svm.n_features_in_ == 4
        for n in (0, 1, 7):
            found = svm.predict(X[:n])
            assert isinstance(found, np.ndarray)
            assert found.shape == (n, *shape)
        with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 4 features"):
            svm.predict(X[:, :3])
    assert chain().predict([]) == []


def test_a_fit_leaves_no_attributes_of_another_model():
    svm = chain()
    assert svm.n_features_in_ == 3

    class Own:
        def joint_features(self, x, y):
            return [x * y]

        def loss(self, y_true, y):
            return float(y_true != y)

        def loss_augmented_decode(self, x, y_true, w):
            return max((-1, 1), key=lambda y: self.loss(y_true, y) + w[0] * x * y)

        def decode(self, x, w):
            return max((-1, 1), key=lambda y: w[0] * x * y)

    svm.set_params(model=Own()).fit([1.0, -2.0], [1, -1])
    assert not hasattr(svm, "n_features_in_")
    assert not hasattr(svm, "classes_")


def test_weights_that_are_all_zero_are_rejected():
    svm = chain()
    with pytest.raises(ValueError, match="sample_weight: all weights are zero"):
        svm.score(*chains(4), np.zeros(4))


def chain():
    return StructuredSVM(ChainModel(), random_state=0).fit(*chains(4))
