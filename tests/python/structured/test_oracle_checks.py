"""Structured models written in Python: validation of results, and fits of incorrect models."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dualgap.structured import ChainModel, StructuredSVM

X = [np.array([1.0, 0.2]), np.array([0.3, 1.0]), np.array([0.9, 0.1])]
Y = [0, 1, 0]


class Plain:
    """A model of two classes, with separate weights for each."""

    def joint_features(self, x, y):
        features = np.zeros(4)
        features[2 * y : 2 * y + 2] = x
        return features

    def loss(self, y_true, y):
        return float(y_true != y)

    def loss_augmented_decode(self, x, y_true, w):
        scores = [self.loss(y_true, y) + w @ self.joint_features(x, y) for y in (0, 1)]
        return int(np.argmax(scores))

    def decode(self, x, w):
        return int(np.argmax([w @ self.joint_features(x, y) for y in (0, 1)]))


def test_a_correct_model_has_a_certificate():
    model = StructuredSVM(Plain(), random_state=0).fit(X, Y)
    assert model.converged_
    assert model.dual_objective_ <= model.objective_


def test_complex_features_are_rejected():
    class Complex(Plain):
        def joint_features(self, x, y):
            return super().joint_features(x, y) * 1j

    with pytest.raises(ValueError, match="model: joint_features returned complex numbers"):
        StructuredSVM(Complex()).fit(X, Y)


@pytest.mark.parametrize("model", [Plain, ChainModel])
def test_passing_a_class_instead_of_a_model_is_an_error(model):
    with pytest.raises(ValueError, match=rf"model: must be an object.*write {model.__name__}\("):
        StructuredSVM(model).fit(X, Y)


def test_the_error_names_a_decoder_that_returns_nothing():
    class Silent(Plain):
        def loss_augmented_decode(self, x, y_true, w):
            pass

    with pytest.raises(ValueError, match="model: loss_augmented_decode returned None for example"):
        StructuredSVM(Silent()).fit(X, Y)


def test_a_label_may_be_none():
    class Nullable(Plain):
        names = (None, 1)

        def joint_features(self, x, y):
            return super().joint_features(x, self.names.index(y))

        def loss_augmented_decode(self, x, y_true, w):
            return max(
                self.names, key=lambda y: self.loss(y_true, y) + w @ self.joint_features(x, y)
            )

        def decode(self, x, w):
            return max(self.names, key=lambda y: w @ self.joint_features(x, y))

    labels = [None if y == 0 else 1 for y in Y]
    assert StructuredSVM(Nullable(), random_state=0, tol=1e-3).fit(X, labels).predict(X) == labels


def blind(self, x, y_true, w):
    return y_true


def failing(self, x, w):
    raise ZeroDivisionError("no decoding today")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"loss_augmented_decode": blind, "decode": lambda self, x, w: 1}, "missed the label of"),
        ({"decode": failing}, "no decoding today"),
        ({"decode": lambda self, x, w: None}, "decode returned None"),
    ],
    ids=["blind", "failing", "silent"],
)
def test_a_fit_with_a_wrong_model_has_no_certificate(wrong, reason):
    model = StructuredSVM(type("Wrong", (Plain,), wrong)(), random_state=0)
    with pytest.warns(ConvergenceWarning, match=reason):
        model.fit(X, Y)
    assert model.coef_.shape == (4,)
    assert not model.converged_
    assert model.dual_objective_ is None
    assert model.duality_gap_ is None
    assert model.certificate_.startswith("none: ")
