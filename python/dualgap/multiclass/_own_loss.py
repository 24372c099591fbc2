"""A loss written in Python, as the core sees it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap._choices import LinearSolver
from dualgap._estimator import warn_user
from dualgap._validation import FloatArray, real_array
from dualgap.losses import Loss, MarginLoss, core_costs, core_loss

# Labels and margins at which the methods are compared before a fit, and rows after it.
_LABELS = 4
_SAMPLES = 12
_ROWS = 100

# What answers may lack, relative to the size of the numbers that they are made of.
_ROUNDING = 1e-9
_PROJECTION = 1e-7


class CheckedLoss:
    """What the core sees of a `MarginLoss`; checks all that the loss returns.

    Attributes
    ----------
    projects : bool
        Whether the loss has a projection.
    radius : float
        The largest sum of the coordinates of a point: the loss where all margins are 1.
    """

    def __init__(self, loss: MarginLoss, n_classes: int) -> None:
        missing = [name for name in ("support", "vertex") if not _has(loss, name)]
        if missing or isinstance(loss, type):
            what = f"the class {loss.__name__}" if isinstance(loss, type) else repr(loss)
            msg = (
                "loss: must be a name, an object from dualgap.losses, or an object with the "
                f"methods support and vertex (and project), got {what}"
            )
            raise ValueError(msg)
        self.loss, self.n_classes = loss, n_classes
        self.projects = _has(loss, "project")
        ones = 1.0 - np.eye(n_classes)
        self.radius = max(self.support(ones[label], label) for label in range(n_classes))
        if not self.radius > 0.0:
            msg = "loss: support must be positive where all margins are 1, for some label"
            raise ValueError(msg)

    def support(self, margins: FloatArray, label: int) -> float:
        """Return the loss itself."""
        margins.setflags(write=False)
        returned = self.loss.support(margins, label)
        try:
            value = float(returned)
        except (TypeError, ValueError):
            value = np.nan
        if not (np.isfinite(value) and value >= 0.0):
            msg = f"loss: support must return a finite number, 0 or more, and returned {returned!r}"
            raise ValueError(msg)
        return value

    def vertex(self, margins: FloatArray, label: int) -> FloatArray:
        """Return a point of the set that attains the loss."""
        margins.setflags(write=False)
        return self._point("vertex", self.loss.vertex(margins, label), label)

    def project(self, point: FloatArray, label: int) -> FloatArray:
        """Return the point of the set that is closest to another."""
        point.setflags(write=False)
        project: Any = self.loss.project  # type: ignore[attr-defined]
        return self._point("project", project(point, label), label)

    def check(self) -> None:
        """Compare the methods with each other where margins are random.

        Raises
        ------
        ValueError
            Naming the method whose answer cannot be right.
        """
        rng = np.random.default_rng(0)
        for label in range(min(self.n_classes, _LABELS)):
            # Margins of all signs and sizes, ties and zeros among them.
            shape = (_SAMPLES, self.n_classes)
            margins = rng.normal(size=shape) * 10.0 ** rng.integers(-2, 3, size=(_SAMPLES, 1))
            margins[::4] = np.round(margins[::4])
            margins[1::4] -= np.abs(margins[1::4]).max()
            margins[:, label] = 0.0
            doubt = self._missed(margins, label) or self._misplaced(margins, label)
            if doubt is not None:
                msg = f"loss: {doubt} (label {label})"
                raise ValueError(msg)

    def doubt(
        self, scores: FloatArray, codes: NDArray[Any], costs: FloatArray | None
    ) -> str | None:
        """Return why the certificate is not to be believed, if there is a reason.

        On the first rows, the loss at the margins of the fitted model is compared with the vertex.
        """
        try:
            for score, label in zip(scores[:_ROWS], codes[:_ROWS], strict=True):
                cost = 1.0 if costs is None else costs[label]
                margins = cost + score - score[label]
                margins[label] = 0.0
                if (missed := self._missed(margins[None], int(label))) is not None:
                    return missed
        except Exception as error:
            return f"the loss failed when its answers were compared ({error!r})"
        return None

    def _missed(self, margins: FloatArray, label: int) -> str | None:
        """Say where a vertex does not attain the support value, or another one does better."""
        values = [self.support(v, label) for v in margins.copy()]
        vertices = np.array([self.vertex(v, label) for v in margins.copy()])
        attained = margins @ vertices.T  # At the row's margins, with the column's vertex.
        rounding = _ROUNDING * (1.0 + self.radius * np.abs(margins).max(axis=1))
        for at, value in enumerate(values):
            own, best = attained[at, at], max(attained[at].max(), 0.0)
            if abs(own - value) > rounding[at]:
                return f"vertex attains {own:.6g} where support returns {value:.6g}"
            if best > value + rounding[at]:
                return (
                    f"support returns {value:.6g} where a point that vertex has returned, or 0, "
                    f"attains {best:.6g}"
                )
        return None

    def _misplaced(self, margins: FloatArray, label: int) -> str | None:
        """Say where a projection is outside of the set, or not the closest point."""
        if not self.projects:
            return None
        for at, v in enumerate(margins):
            near = self.project(v.copy(), label)
            size = 1.0 + self.radius + np.abs(v).max()
            for other in margins:
                outside = other @ near - self.support(other.copy(), label)
                if outside > _PROJECTION * size * (1.0 + np.abs(other).max()):
                    return f"project returns a point that is outside of the set by {outside:.3g}"
            # The projection p of v is where v - p is normal to the set (Kolmogorov's criterion).
            slope = v - near
            slope[label] = 0.0
            farther = slope @ self.vertex(slope.copy(), label) - slope @ near
            if farther > _PROJECTION * size * (1.0 + np.abs(slope).max()):
                return f"project does not return the closest point (sample {at})"
        return None

    def _point(self, method: str, returned: Any, label: int) -> FloatArray:
        try:
            point = real_array(f"loss: {method}", returned).copy()
        except (TypeError, ValueError):
            point = np.zeros((0, 0))
        if point.shape != (self.n_classes,) or returned is None:
            msg = (
                f"loss: {method} must return an array of shape ({self.n_classes},), and returned "
                f"{type(returned).__name__} {np.shape(returned)}"
            )
            raise ValueError(msg)
        # Not a comparison that NaN would pass.
        if not (point >= -_ROUNDING * self._size()).all() or not np.isfinite(point).all():
            msg = f"loss: {method} must return finite numbers, 0 or more, and returned {returned!r}"
            raise ValueError(msg)
        np.maximum(point, 0.0, out=point)
        if point[label] != 0.0:
            msg = f"loss: {method} must return 0 at the label, and returned {point[label]:.3g}"
            raise ValueError(msg)
        return point

    def _size(self) -> float:
        return getattr(self, "radius", 1.0)


def own_loss(loss: Any, n_classes: int) -> _core._Loss:
    """Return the core's arguments for a loss written in Python, checked on samples."""
    checked = CheckedLoss(loss, n_classes)
    checked.check()
    return {
        "loss": checked,
        "k": None,
        "weights": None,
        "costs": core_costs(getattr(loss, "costs", None)),
        "costs_per_row": False,
    }


def check_solver(loss: Any, solver: LinearSolver, smoothing: float) -> LinearSolver:
    """Return the solver for a loss as the core takes it; refuse one that needs a projection."""
    if isinstance(loss, str) or loss.projects:
        return solver
    if smoothing > 0.0 or solver in ("block-descent", "newton"):
        what = "smoothing" if smoothing > 0.0 else f'solver: "{solver}"'
        msg = f"{what} needs a loss with a method project, and {type(loss.loss).__name__} has none"
        raise ValueError(msg)
    return "block-frank-wolfe" if solver == "auto" else solver


def core_loss_of(loss: Any, n_classes: int) -> _core._Loss:
    """Return the core's arguments for any loss."""
    return core_loss(loss) if isinstance(loss, str | Loss) else own_loss(loss, n_classes)


def refuse_certificate(model: Any, problem: _core._Loss, X: Any, codes: NDArray[Any]) -> None:
    """Say what the certificate of a fit with a loss of one's own rests on, or that it has none."""
    if isinstance(problem["loss"], str):
        return
    scores = model._scores(X[:_ROWS])
    doubt = problem["loss"].doubt(scores, codes, problem["costs"])
    if doubt is None:
        model.certificate_ = "exact if the loss's vertex is"
        return
    model.certificate_ = f"none: {doubt}"
    model.dual_objective_ = model.duality_gap_ = model.relative_gap_ = model._lambda = None
    model.converged_ = False
    warn_user(f"the model is kept without a certificate: {doubt}")


def _has(loss: object, method: str) -> bool:
    return callable(getattr(loss, method, None))
