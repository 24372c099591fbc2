"""Random problems over extreme ranges, whose certificates are checked in exact arithmetic."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from exact import box_of, dual_value, fractions, objective

from dualgap import MulticlassSVC
from dualgap.losses import Loss, StructuredHinge

N_CLASSES = 4
SCALES = (1e-150, 1e-75, 1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e75, 1e150)
SINGLE = (1e-30, 1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e15)
STRENGTHS = (1e-12, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e12)
SMOOTHINGS = (0.0, 1e-12, 1e-6, 0.1, 1.0, 1e3)
SOLVERS = (
    ("block-descent", None),
    ("newton", None),
    ("block-frank-wolfe", "frank-wolfe"),
    ("block-frank-wolfe", "pairwise"),
    ("frank-wolfe", None),
    ("away-frank-wolfe", None),
    ("projected-gradient", None),
    ("subgradient", None),
)
LOSSES = (
    Loss("max-hinge"),
    Loss("weston-watkins"),
    Loss("top-k", k=2),
    Loss("usunier", k=3),
    Loss("weighted-top-k", weights=[0.5, 0.3, 0.2, 0.0]),
    Loss("weighted-usunier", weights=[0.7, 0.2, 0.1, 0.0]),
    StructuredHinge([[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [0.3, 2, 1, 0]]),
)


@dataclass(frozen=True)
class Trial:
    """A problem and the options of its solver."""

    loss: Loss
    solver: str
    step: str | None
    smoothing: float
    single: bool
    sparse: bool
    scale: float
    C: float
    seed: int

    def rows(self) -> tuple[Any, Any]:
        """Rows and labels."""
        random = np.random.default_rng(self.seed)
        X = random.normal(size=(10, 3)) * self.scale
        X[random.random(X.shape) < 0.2] = 0.0
        y = np.arange(10) % N_CLASSES
        X = X.astype(np.float32 if self.single else np.float64)
        return (sp.csr_matrix(X) if self.sparse else X), y


def draw(random: np.random.Generator) -> Trial:
    """Return a random trial."""

    def draw_one(values: Any) -> Any:
        return values[random.integers(len(values))]

    solver, step = draw_one(SOLVERS)
    smoothing = 0.0 if solver == "away-frank-wolfe" else draw_one(SMOOTHINGS)
    single = bool(random.random() < 0.4)
    return Trial(
        loss=draw_one(LOSSES),
        solver=solver,
        step=step,
        smoothing=smoothing,
        single=single,
        sparse=bool(random.random() < 0.3),
        scale=draw_one(SINGLE if single else SCALES),
        C=draw_one(STRENGTHS),
        seed=int(random.integers(2**31)),
    )


# Solvers that keep a dual point for a warm start.
WARM_STARTING = ("block-descent", "newton", "block-frank-wolfe", "frank-wolfe")


def accept_error_with_remedy(error: RuntimeError) -> None:
    """Return if the error of the fit names a remedy; otherwise, raise the error again."""
    if "scale the data" not in str(error):
        raise error


def check(trial: Trial, tol: float = 1e-6, max_iter: int = 30) -> str:
    """Fit a model and verify its certificate.

    Return "holds", or `refused` if the fit raised an error that names a remedy.
    """
    X, y = trial.rows()
    model = MulticlassSVC(
        trial.loss,
        C=trial.C,
        smoothing=trial.smoothing,
        solver=trial.solver,
        step=trial.step,
        fit_intercept=False,
        tol=tol,
        max_iter=max_iter,
        # The other solvers keep no dual point.
        warm_start=trial.solver in WARM_STARTING,
        random_state=trial.seed,
        n_jobs=1,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
    except RuntimeError as error:
        accept_error_with_remedy(error)
        return "refused"  # words: allow
    rows, labels = fractions(X), y.tolist()
    primal = objective(trial.loss, rows, labels, fractions(model.coef_), trial.C, trial.smoothing)
    assert primal <= Fraction(model.objective_), (trial, float(primal), model.objective_)
    assert model.dual_objective_ <= model.objective_
    if trial.smoothing == 0.0 or box_of(trial.loss) is not None:
        # Otherwise only a lower bound on the objective is known.
        assert Fraction(model.dual_objective_) <= primal, (trial, model.dual_objective_)
    assert model.converged_ == (
        model.duality_gap_ <= max(tol * abs(model.objective_), 1e-15 * model.null_objective_)
    )
    _check_dual_point(trial, model, rows, labels)
    return "holds"


def _check_dual_point(trial: Trial, model: Any, rows: Any, labels: list[int]) -> None:
    """Check that the reported bound is at most the exact value of the stored dual point.

    The exact value belongs to the point after it is scaled into the feasible set. A fit stores its
    last dual point but reports its best bound. Therefore, the check is skipped unless the last
    epoch raised the bound.
    """
    bounds = model.history_["dual_objective"]
    bounds = bounds[np.isfinite(bounds)]
    if bounds[-1] <= max([0.0, *bounds[:-1]]):
        return
    gauged = box_of(trial.loss) is not None or trial.loss.name == "weighted-usunier"
    if not model.warm_start or not gauged:
        return
    beta = np.asarray(model._end[2]["beta"])
    if len(beta) == 0:
        return
    exact = dual_value(trial.loss, rows, labels, fractions(beta), trial.C, trial.smoothing)
    slack = Fraction(1e-9) * max(Fraction(model.null_objective_), Fraction(model.objective_))
    assert Fraction(model.dual_objective_) <= exact + slack, (trial, float(exact))
