"""Cross-validated polynomial networks."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import GroupKFold, StratifiedKFold

from dualgap import PolynomialNetworkClassifier, PolynomialNetworkClassifierCV

# Models with few bases do not reach the tolerance.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RADII = [0.3, 3.0, 30.0]
PARAMETERS: dict[str, Any] = {"n_components": 4, "reoptimize": "output", "random_state": 0}


def rows(n: int = 150) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    label = np.digitize(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n), [-0.3, 0.3])
    return X, np.array(["low", "middle", "top"])[label]


def search_with_loops(X: Any, y: Any, folds: Any) -> tuple[float, int, Any]:
    best = (-1.0, 0, 0.0)
    seed = int(np.random.RandomState(0).randint(0, 2**63 - 1, dtype=np.int64)) % 2**32
    for radius in RADII:
        for size in range(1, 5):
            total = 0.0
            for train, held_out in folds:
                parameters = {**PARAMETERS, "n_components": 4, "radius": radius}
                model = PolynomialNetworkClassifier(**{**parameters, "random_state": seed})
                model.fit(X[train], y[train], validation_data=(X[held_out], y[held_out]))
                history = model.history_
                at = next(i for i, k in enumerate(history["n_components"]) if k == size)
                total += history["validation_score"][at] / len(folds)
            if total > best[0] + 1e-12 or (abs(total - best[0]) <= 1e-12 and size < best[1]):
                best = (total, size, radius)
    _, size, radius = best
    parameters = {**PARAMETERS, "n_components": size, "radius": radius, "random_state": seed}
    return radius, size, PolynomialNetworkClassifier(**parameters).fit(X, y)


def test_the_search_agrees_with_plain_loops() -> None:
    X, y = rows()
    folds = list(StratifiedKFold(3).split(X, y))
    radius, size, model = search_with_loops(X, y, folds)
    for n_jobs in (1, 3):
        search = PolynomialNetworkClassifierCV(RADII, cv=3, n_jobs=n_jobs, **PARAMETERS).fit(X, y)
        assert (search.radius_, search.n_components_) == (radius, size)
        assert search.cv_scores_.shape == (3, 4, 3)
        assert np.array_equal(search.components_, model.components_)
        assert np.array_equal(search.decision_function(X), model.decision_function(X))
        assert search.n_nonzero_bases_ == len(model.components_)
        for method in ("decision_function", "predict", "predict_proba"):
            assert np.array_equal(getattr(search, method)(X), getattr(model, method)(X))
        public = {name for name in dir(model) if not name.startswith("_")}
        lacking = public - set(dir(search)) - {"radius", "validation_fraction", "warm_start"}
        assert not lacking
        assert search.dual_objective_ == model.dual_objective_
    copy = pickle.loads(pickle.dumps(search))
    assert np.array_equal(copy.decision_function(X), search.decision_function(X))


def test_the_search_uses_scorers_and_groups() -> None:
    X, y = rows()
    groups = np.arange(150) % 3
    search = PolynomialNetworkClassifierCV(
        RADII, cv=GroupKFold(3), scoring="neg_log_loss", n_jobs=2, **PARAMETERS
    )
    search.fit(X, y, groups=groups)
    assert search.cv_scores_.shape == (3, 1, 3)
    assert search.n_components_ == 4
    train, held_out = next(iter(GroupKFold(3).split(X, y, groups)))
    seed = int(np.random.RandomState(0).randint(0, 2**63 - 1, dtype=np.int64)) % 2**32
    parameters = {**PARAMETERS, "radius": RADII[1], "random_state": seed}
    model = PolynomialNetworkClassifier(**parameters).fit(X[train], y[train])
    expected = check_scoring(model, "neg_log_loss")(model, X[held_out], y[held_out])
    assert search.cv_scores_[1, 0, 0] == expected


def test_a_size_chosen_by_scores_gives_no_warning() -> None:
    X, y = rows()
    search = PolynomialNetworkClassifierCV(RADII, cv=3, **{**PARAMETERS, "n_components": 8})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.fit(X, y)
    assert search.n_components_ < 8
    assert not search.converged_
    with pytest.warns(ConvergenceWarning):
        search.set_params(scoring="accuracy").fit(X, y)


def test_the_callback_sees_the_search_and_the_final_fit() -> None:
    X, y = rows()
    epochs: list[int] = []
    search = PolynomialNetworkClassifierCV(
        RADII, cv=3, callback=lambda epoch, *_: epochs.append(epoch), **PARAMETERS
    )
    final = search.fit(X, y).history_["epoch"].tolist()
    assert epochs == [*range(1, 3 * len(RADII) + 1), *final]


@pytest.mark.parametrize("radii", [[], [1.0, -1.0], [[1.0, 2.0]], "many", [np.nan]])
def test_errors_of_bad_radii_name_the_argument(radii: Any) -> None:
    with pytest.raises(ValueError, match=r"^radii: "):
        PolynomialNetworkClassifierCV(radii).fit(*rows())


def test_a_class_missing_from_a_fold_is_an_error() -> None:
    X, y = rows(20)
    y = np.where(np.arange(20) == 3, "rare", "common")
    with pytest.raises(ValueError, match=r"^y: .*fewer folds"):
        PolynomialNetworkClassifierCV(cv=[(np.arange(4, 20), np.arange(4))]).fit(X, y)
