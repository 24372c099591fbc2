"""Fits of polynomial networks and factorization machines to random problems of extreme ranges."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from claims import Claim, Claims, claim, try_fit
from drawing import Random, draw_distinct, draw_one, draw_rows
from quadratic import Quadratic

from dualgap import Chunks
from dualgap.polynomial import (
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
)

SCALES = (1e-150, 1e-77, 1e-30, 1e-9, 1e-3, 1.0, 1.0, 1.0, 1e3, 1e9, 1e30, 1e77, 1e150)
TARGETS = (1e-163, 1e-77, 1e-9, 1.0, 1.0, 1.0, 1e9, 1e77, 1e150)
RADII = (1e-9, 1e-3, 0.3, 3.0, 100.0, 1e6, 1e12)
PENALTIES = ("l1", "l1/l2", "l1/linf")
ACCURATE: dict[str, Any] = {"tol": 1e-10, "max_iter": 60, "n_components": 30}
VARIANTS: tuple[dict[str, Any], ...] = (
    {"reoptimize": "full"},
    {"reoptimize": "output"},
    {"reoptimize": "full", "n_components": 1, "max_iter": 1},
    {"reoptimize": "output", "n_components": 2},
    {"reoptimize": "output", "selection": "random"},
    {"reoptimize": "full", "selection": "power"},
    {"reoptimize": "output", "selection": "exact"},
    {"reoptimize": "full", "selection": "best-row"},
)


def radius_of(random: Random, scale: float, penalty: str) -> float:
    """Draw a radius, in most cases divided by the squared scale of the rows."""
    radius = draw_one(random, RADII)
    unit = scale**-2 if 1e-30 <= scale <= 1e30 and random.random() < 0.7 else 1.0
    return float(radius * unit)


def name_infeasible_layer(problem: Quadratic, model: Any) -> str:
    """Name the layer that is outside its ball, or return "" if both layers are inside."""
    # The exact norm is at least this factor times the computed norm, which is rounded up.
    if problem.norm(model) * (1 - Fraction(1, 10**50)) > Fraction(problem.radius):
        return f"output_ of norm {float(problem.norm(model))!r} beyond {problem.radius!r}"
    norms = np.linalg.norm(model.components_, axis=1)
    if len(norms) and norms.max() > 1 + 1e-15:
        return f"a basis vector of norm {norms.max()!r}"
    return ""


def polynomial(kernel: str, classify: bool) -> Callable[[Random], Claims]:
    """Return the entry of KINDS for a model."""
    names: dict[tuple[str, bool], Any] = {
        ("square", True): PolynomialNetworkClassifier,
        ("square", False): PolynomialNetworkRegressor,
        ("anova", True): FactorizationMachineClassifier,
        ("anova", False): FactorizationMachineRegressor,
    }

    def kind(random: Random) -> Claims:
        scale, penalty = draw_one(random, SCALES), draw_one(random, PENALTIES)
        X = draw_rows(random, scale, 12, 3)
        linear = draw_one(random, ("explicit", "augment", None))
        loss = draw_one(random, ("logistic", "smoothed-hinge", "squared-hinge", "binary-logistic"))
        weights = random.uniform(0.1, 3.0, 12) if random.random() < 0.5 else None
        if classify:
            y, given = np.arange(12) % 3, {"loss": loss}
            targets = y
        else:
            loss, given = "squared", {}
            y = random.normal(size=(12, draw_one(random, (1, 2)))) * draw_one(random, TARGETS)
            targets = y
        own: dict[str, Any] = {
            "penalty": penalty,
            "linear": linear,
            "radius": radius_of(random, scale, penalty),
            **given,
        }
        if linear == "explicit":
            own["alpha"] = draw_one(random, (1e-6, 1.0, 1.0, 1e6))
        problem = Quadratic(
            X, targets, kernel, penalty, own["radius"], linear, own.get("alpha", 1.0), loss, weights
        )
        data: Any = X
        if (form := random.random()) < 0.3:
            data = sp.csr_matrix(X)
        elif form < 0.4:
            data = Chunks([X[:5], X[5:]])
        ways = [way for way in VARIANTS if penalty != "l1/l2" or way.get("selection") != "exact"]
        for way in (ACCURATE, *draw_distinct(random, ways, 3)):
            options = {"tol": 1e-6, "max_iter": 10, "n_components": 8, **way}
            model = names[kernel, classify](**own, **options, random_state=0, n_jobs=1)
            if try_fit(model.fit, data, y, weights) is None:
                yield None
                continue
            what = f"{type(model).__name__}, rows {scale:g}, {own}, {way}"
            told = claim(what, model, problem.objective(model))
            factor = problem.inside(model)
            inside = told.exact if factor == 1 else problem.objective(model, factor)
            yield Claim(
                **{
                    **told.__dict__,
                    "optimum_below": inside[1],
                    "wrong": name_infeasible_layer(problem, model),
                }
            )

    return kind


KINDS: dict[str, Callable[[Random], Claims]] = {
    "polynomial network: classes": polynomial("square", True),
    "polynomial network: values": polynomial("square", False),
    "factorization machine: classes": polynomial("anova", True),
    "factorization machine: values": polynomial("anova", False),
}
