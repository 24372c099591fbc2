"""A user's program that asserts the types of results, and calls that type checkers must reject.

`make lint` type-checks this file, and `tests/python/test_typing.py` runs it.
"""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap import (
    FactorizationMachineRegressor,
    MulticlassSVC,
    OrdinalRecommender,
    PolynomialNetworkClassifier,
    PolynomialNetworkClassifierCV,
    StructuredSVM,
)
from dualgap.datasets import synthetic_ratings
from dualgap.distributed import ConsensusSVC
from dualgap.losses import TopK
from dualgap.metrics import ndcg_at_k
from dualgap.plotting import ConvergenceDisplay
from dualgap.recommend import ConditionalGradient, Variational
from dualgap.structured import ChainModel, MultilabelModel

X = np.random.default_rng(0).normal(size=(90, 4))
y = np.digitize(X[:, 0], [-0.4, 0.4])


def stop(epoch: int, seconds: float, objective: float, dual_objective: float) -> bool:
    return epoch >= 50 and objective - dual_objective < 0.1 and seconds > 60.0


def linear() -> None:
    svc = MulticlassSVC(TopK(2), solver="block-frank-wolfe", step="away", callback=stop).fit(X, y)
    assert_type(svc, MulticlassSVC)
    assert_type(svc.objective_, float)
    assert_type(svc.dual_objective_, float)
    assert_type(svc.duality_gap_, float)
    assert_type(svc.null_objective_, float)
    assert_type(svc.converged_, bool)
    assert_type(svc.n_iter_, int)
    assert_type(svc.history_, dict[str, NDArray[Any]])
    assert_type(svc.coef_, NDArray[np.float64])
    assert_type(svc.predict(X), NDArray[Any])
    assert_type(svc.decision_function(sp.csr_array(X)), NDArray[np.float64])
    relative = svc.duality_gap_ / svc.null_objective_
    print(f"{relative:.1e}", svc.predict_top_k(X, 2)[0])
    consensus = ConsensusSVC("weston-watkins", n_partitions=2, tol=1e-2).fit(sp.csr_array(X), y)
    assert_type(consensus.duality_gap_, float)
    assert_type(consensus.n_partitions_, int)


def rejected() -> None:
    # An unknown name, and an unknown parameter.
    MulticlassSVC(solver="simplex")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    FactorizationMachineRegressor(loss="squared")  # pyright: ignore[reportCallIssue]


def polynomial() -> None:
    network = PolynomialNetworkClassifier(3, penalty="l1/linf", loss="squared-hinge").fit(X, y)
    assert_type(network.dual_objective_, float)
    assert_type(network.components_, NDArray[np.float64])
    search = PolynomialNetworkClassifierCV([1.0, 10.0], n_components=2, cv=2).fit(X, y)
    assert_type(search.radius_, float)
    assert_type(search.predict_proba(X), NDArray[np.float64])
    regressor = FactorizationMachineRegressor(2).fit(X, X[:, 0] * X[:, 1])
    assert_type(regressor.history_, dict[str, NDArray[Any]])


def structured() -> None:
    words = [np.eye(3)[[0, 1, 2]], np.eye(3)[[2, 1]]]
    letters = [["a", "b", "c"], ["c", "b"]]
    svm = StructuredSVM(ChainModel(loss="mean-hamming"), C=10.0).fit(words, letters)
    assert_type(svm.duality_gap_, float)
    assert_type(svm.parameters_, dict[str, NDArray[np.float64]])
    assert_type(svm.oracle_calls_, int | None)
    print(svm.predict([sp.csr_matrix(word) for word in words]), svm.score(words, letters))
    labels = np.column_stack([y == 0, y == 1]).astype(int)
    sets = StructuredSVM(MultilabelModel(edges="tree"), solver="subgradient", max_iter=5)
    print(sets.fit(X, labels).objective_, sets.fit(sp.csr_array(X), labels).objective_)
    for piece in StructuredSVM(ChainModel()).path(words, letters, 0.1, 1.0):
        assert_type(piece.duality_gap, float)


def recommender() -> None:
    ratings = synthetic_ratings(400, 30, 20)
    model = OrdinalRecommender(2, method=Variational(max_iter=3)).fit(ratings)
    assert_type(model.objective_, float)
    assert_type(model.duality_gap_, float | None)
    assert_type(model.history_, dict[str, NDArray[Any]])
    greedy = OrdinalRecommender(2, method=ConditionalGradient(reoptimize="output", radius=100.0))
    greedy.fit(ratings)
    if greedy.duality_gap_ is not None:
        print(f"{greedy.duality_gap_:.3g}")
    predicted = model.predict(ratings["user"], ratings["item"])
    print(ndcg_at_k(ratings["rating"], predicted, 5, groups=ratings["user"]))
    assert_type(ConvergenceDisplay.from_estimator(model, against="epoch"), ConvergenceDisplay)


if __name__ == "__main__":
    linear()
    polynomial()
    structured()
    recommender()
