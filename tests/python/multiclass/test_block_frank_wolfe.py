"""Block Frank-Wolfe's steps with an active set, on multi-category problems."""

from __future__ import annotations

import pytest
from sklearn.datasets import load_digits

from dualgap import MulticlassSVC
from dualgap.losses import TopK


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("loss", ["max-hinge", TopK(2), "weston-watkins"])
def test_pairwise_steps_and_gap_sampling_reach_the_optimum(loss, smoothing):
    X, y = load_digits(n_class=4, return_X_y=True)
    X, y = X[:200] / 16, y[:200]
    reference = MulticlassSVC(loss, smoothing=smoothing, tol=1e-5, random_state=0).fit(X, y)
    for step in ("away", "pairwise"):
        for sampling in ("permutation", "gap"):
            model = MulticlassSVC(
                loss,
                smoothing=smoothing,
                solver="block-frank-wolfe",
                step=step,
                sampling=sampling,
                tol=1e-4,
                max_iter=3000,
                random_state=0,
            ).fit(X, y)
            assert abs(model.objective_ - reference.objective_) <= model.duality_gap_ + 1e-5
