"""Small recommenders and helpers for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualgap.recommend import ConditionalGradient, OrdinalRecommender, Variational

N_USERS, N_ITEMS = 120, 60
UNKNOWN = 10**6
PENALTIES = ["l1", "l1/l2", "l1/linf"]


def quick(**parameters: Any) -> OrdinalRecommender:
    """Return a recommender with a variational fit."""
    return make(Variational(n_models=2, max_iter=8), parameters)


def greedy(**parameters: Any) -> OrdinalRecommender:
    """Return a recommender that is fitted by conditional gradient."""
    return make(ConditionalGradient(reoptimize="output", radius=100.0), parameters)


def make(method: Any, parameters: dict[str, Any]) -> OrdinalRecommender:
    """Return a recommender; `parameters` may include parameters of the method."""
    own = {name: parameters.pop(name) for name in set(parameters) & set(method.get_params())}
    settings = {"n_components": 3, "method": method.set_params(**own), "random_state": 0}
    return OrdinalRecommender(**{**settings, "n_jobs": 1, **parameters})


def all_pairs() -> tuple[np.ndarray, np.ndarray]:
    users, items = np.divmod(np.arange(N_USERS * N_ITEMS), N_ITEMS)
    return users, items


def machines(model: OrdinalRecommender) -> list[Any]:
    """Return the factorization machines whose expected ratings a recommender averages."""
    assert model._fitted.rating_model is not None
    return model._fitted.rating_model.machines


def assert_same(a: OrdinalRecommender, b: OrdinalRecommender) -> None:
    """Check that two models are equal bit for bit, in every block."""
    for mine, other in zip(machines(a), machines(b), strict=True):
        for name, value in vars(mine).items():
            np.testing.assert_array_equal(value, getattr(other, name), err_msg=name)
