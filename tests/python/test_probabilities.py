"""Errors for missing probabilities say what to use instead."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from dualgap import (
    ClassFeatureSVC,
    MulticlassSVC,
    MulticlassSVCCV,
    SequenceTagger,
    StructuredCV,
    StructuredSVM,
)
from dualgap.distributed import ConsensusSVC
from dualgap.polynomial import PolynomialNetworkClassifier
from dualgap.structured import MulticlassModel

TEMPERATURE = (
    'sklearn.calibration.CalibratedClassifierCV(method="temperature"), with scikit-learn 1.8'
)
MARGIN: list[tuple[Any, str]] = [
    (MulticlassSVC(), "dualgap.LogisticRegression"),
    (MulticlassSVCCV(), "dualgap.LogisticRegression"),
    (ClassFeatureSVC(np.eye(3)), "dualgap.ClassFeatureLogisticRegression"),
    (ConsensusSVC(), "dualgap.ConsensusLogisticRegression"),
]
PARTS: list[tuple[Any, str]] = [
    (SequenceTagger(), "predict_marginals"),
    (SequenceTagger(loss="logistic"), "predict_marginals"),
    (StructuredSVM(MulticlassModel()), 'dualgap.SequenceTagger(loss="logistic")'),
    (StructuredCV(SequenceTagger()), 'dualgap.SequenceTagger(loss="logistic")'),
]


@pytest.mark.parametrize("method", ["predict_proba", "predict_log_proba"])
@pytest.mark.parametrize(("model", "instead"), [*MARGIN, *PARTS])
def test_errors_for_missing_probabilities_say_what_to_use(
    model: Any, instead: str, method: str
) -> None:
    assert not hasattr(model, method)
    with pytest.raises(AttributeError) as caught:
        getattr(model, method)
    message = str(caught.value)
    assert f"{type(model).__name__!r} object has no attribute {method!r}; " in message
    assert instead in message
    assert (TEMPERATURE in message) == any(model is one for one, _ in MARGIN)


@pytest.mark.parametrize(("model", "instead"), [*MARGIN, *PARTS])
def test_other_missing_attributes_have_a_plain_error(model: Any, instead: str) -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'coeff_'$"):
        _ = model.coeff_
    assert type(copy.deepcopy(model)) is type(pickle.loads(pickle.dumps(model)))


def test_polynomial_hinge_losses_name_both_remedies() -> None:
    X, y = load_iris(return_X_y=True)
    model = PolynomialNetworkClassifier(loss="squared-hinge", max_iter=2, random_state=0)
    with pytest.warns(match="."):
        model.fit(X, y)
    with pytest.raises(AttributeError, match=r"^predict_proba: loss='squared-hinge': ") as caught:
        model.predict_proba(X)
    assert 'loss="logistic"' in str(caught.value)
    assert TEMPERATURE in str(caught.value)
