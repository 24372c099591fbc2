"""Complex numbers in any argument of any estimator raise an error that names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from fitted import CLASSES, FITS, LABELS, RATINGS, ROWS
from sklearn.base import clone

from dualgap import ClassFeatureSVC, MulticlassSVC, MulticlassSVCCV, StructuredSVM
from dualgap.losses import Loss, StructuredHinge
from dualgap.recommend import OrdinalRecommender
from dualgap.structured import MulticlassModel

# NumPy drops an imaginary part with a warning, which is an error in these tests.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RECOMMENDERS = [name for name in FITS if name.startswith("recommender")]
OTHERS = [name for name in FITS if name not in RECOMMENDERS]


def make_complex(values: Any) -> Any:
    """Add an imaginary part to all numbers; strings do not change."""
    if isinstance(values, list):
        return [make_complex(value) for value in values]
    if isinstance(values, str):
        return values
    return np.asarray(values) + 1j


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", [name for name in OTHERS if not name.startswith("tagger")])
def test_complex_rows_are_rejected(name: str, sparse: bool) -> None:
    estimator, X, y = FITS[name]
    bad = make_complex(X if isinstance(X, list) else np.asarray(X))
    if sparse and name == "matching":
        pytest.skip("pairs have three dimensions")
    if sparse:
        bad = [sp.csr_array(x) for x in bad] if isinstance(bad, list) else sp.csr_array(bad)
    with pytest.raises(ValueError, match=r"[cC]omplex"):
        clone(estimator).fit(bad, y)
    model = clone(estimator).fit(X, y)
    with pytest.raises(ValueError, match=r"[cC]omplex"):
        model.predict(bad)


@pytest.mark.parametrize("name", [name for name in OTHERS if not name.startswith("tagger")])
def test_complex_targets_are_rejected(name: str) -> None:
    estimator, X, y = FITS[name]
    with pytest.raises(ValueError, match=r"[cC]omplex|^[yY]: .*(integers|zeros and ones)"):
        clone(estimator).fit(X, make_complex(y))


@pytest.mark.parametrize("name", FITS)
def test_complex_weights_are_rejected(name: str) -> None:
    estimator, X, y = FITS[name]
    n = len(X)
    with pytest.raises(ValueError, match=r"([cC]omplex)|(^sample_weight)"):
        clone(estimator).fit(X, y, sample_weight=np.ones(n) + 1j)


@pytest.mark.parametrize("name", ["pn-regressor", "fm-regressor"])
def test_complex_validation_targets_are_rejected(name: str) -> None:
    estimator, X, y = FITS[name]
    with pytest.raises(ValueError, match=r"Complex data"):
        clone(estimator).fit(X, y, validation_data=(X, y + 1j))


@pytest.mark.parametrize("name", RECOMMENDERS)
def test_complex_ratings_are_rejected(name: str) -> None:
    estimator = clone(FITS[name][0])
    users, items, values = (RATINGS[column].to_numpy() for column in ("user", "item", "rating"))
    matrix = sp.coo_array((values + 1j, (users, items)))
    table = np.column_stack([users, items, values]) + 0j
    for bad in ((users, items, values + 1j), RATINGS.assign(rating=values + 1j), matrix, table):
        with pytest.raises(ValueError, match=r"^ratings: |^users: "):
            estimator.fit(bad)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("side", ["user", "item"])
def test_complex_features_are_rejected(side: str, sparse: bool) -> None:
    n = int(RATINGS[side].max()) + 1
    features: Any = pd.DataFrame({"a": np.ones(n) + 1j})
    if sparse:
        features = sp.csr_array(np.ones((n, 1)) + 1j)
    with pytest.raises(ValueError, match=rf"^{side}_features: Complex data"):
        OrdinalRecommender().fit(RATINGS, **{f"{side}_features": features})


def test_complex_parameters_are_rejected() -> None:
    costs = 1.0 - np.eye(3) + 0j
    for model in (
        MulticlassSVC(StructuredHinge(costs)),
        StructuredSVM(MulticlassModel(costs=costs)),
    ):
        with pytest.raises(ValueError, match=r"^costs: Complex data"):
            model.fit(*CLASSES)
    with pytest.raises(ValueError, match=r"^weights: Complex data"):
        Loss("weighted-top-k", weights=np.array([1.0, 0.0, 0.0]) + 0j)
    with pytest.raises(ValueError, match=r"[cC]omplex"):
        ClassFeatureSVC(np.eye(3) + 1j).fit(*CLASSES)
    with pytest.raises(ValueError, match=r"^Cs: "):
        MulticlassSVCCV(Cs=np.array([1.0, 2.0]) + 1j).fit(*CLASSES)
    with pytest.raises(ValueError, match=r"^levels: "):
        OrdinalRecommender(levels=np.arange(1.0, 6.0) + 1j).fit(RATINGS)


class OwnHinge:
    """A loss whose points are complex."""

    def support(self, margins: Any, label: int) -> float:
        return max(0.0, float(margins.max()))

    def vertex(self, margins: Any, label: int) -> Any:
        point = np.zeros(3, dtype=complex)
        point[margins.argmax()] = margins.max() > 0.0
        return point


def test_complex_results_of_a_loss_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"^loss: vertex"):
        MulticlassSVC(OwnHinge()).fit(ROWS, LABELS)
