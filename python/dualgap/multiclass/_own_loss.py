"""Adapts custom losses written in Python to the interface of the core."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap._choices import LinearSolver
from dualgap._estimator import warn_user
from dualgap._validation import FloatArray, real_array
from dualgap.losses import Loss, MarginLoss, core_costs, core_loss

# Before a fit, the methods are compared for this number of labels, at this number of margin vectors
# for each label.
_LABELS, _SAMPLES = 4, 12
# After a fit, the methods are compared at the margins of this number of rows.
_ROWS = 100

# Tolerances for results, relative to the size of their terms.
_ROUNDING = 1e-9
_PROJECTION = 1e-7


class CheckedLoss:
    """Wraps a `MarginLoss` for calls from the core, and checks every result.

    Attributes
    ----------
    projects : bool
        Whether the loss has a projection.
    radius : float
        The largest possible sum of a point's coordinates, equal to the loss at margins of 1.
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
            msg = "loss: support must be positive at margins of 1 for some label, got 0 for all"
            raise ValueError(msg)

    def support(self, margins: FloatArray, label: int) -> float:
        """Return the loss."""
        margins.setflags(write=False)
        returned = self.loss.support(margins, label)
        try:
            value = float(returned)
        except (TypeError, ValueError):
            value = np.nan
        if not (np.isfinite(value) and value >= 0.0):
            msg = f"loss: support must return a finite number of at least 0, got {returned!r}"
            raise ValueError(msg)
        return value

    def vertex(self, margins: FloatArray, label: int) -> FloatArray:
        """Return the point of the set that attains the loss."""
        margins.setflags(write=False)
        return self._point("vertex", self.loss.vertex(margins, label), label)

    def project(self, point: FloatArray, label: int) -> FloatArray:
        """Return the point of the set closest to the given point."""
        point.setflags(write=False)
        project: Any = self.loss.project  # type: ignore[attr-defined]
        return self._point("project", project(point, label), label)

    def check(self) -> None:
        """Compare the methods with each other at random margins.

        Raises
        ------
        ValueError
            If two results contradict each other; the message names the method.
        """
        rng = np.random.default_rng(0)
        for label in range(min(self.n_classes, _LABELS)):
            # Margins of both signs and many sizes, with ties and zeros.
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
        """Return a reason why the certificate may be wrong, or None.

        Compares the loss with its vertices at the margins of the first rows.
        """
        try:
            for score, label in zip(scores[:_ROWS], codes[:_ROWS], strict=True):
                cost = 1.0 if costs is None else costs[label]
                margins = cost + score - score[label]
                margins[label] = 0.0
                if (missed := self._missed(margins[None], int(label))) is not None:
                    return missed
        except Exception as error:
            return f"the loss raised an error when its results were compared ({error!r})"
        return None

    def _missed(self, margins: FloatArray, label: int) -> str | None:
        """Return a message about the first vertex whose value differs from `support`, if any."""
        values = [self.support(v, label) for v in margins.copy()]
        vertices = np.array([self.vertex(v, label) for v in margins.copy()])
        attained = margins @ vertices.T  # One row per margin vector, one column per vertex.
        rounding = _ROUNDING * (1.0 + self.radius * np.abs(margins).max(axis=1))
        for at, value in enumerate(values):
            own, best = attained[at, at], max(attained[at].max(), 0.0)
            if abs(own - value) > rounding[at]:
                return f"vertex attains {own:.6g}, but support returns {value:.6g}"
            if best > value + rounding[at]:
                return (
                    f"support returns {value:.6g}, but a point that vertex has returned, or 0, "
                    f"attains {best:.6g}"
                )
        return None

    def _misplaced(self, margins: FloatArray, label: int) -> str | None:
        """Return a message about the first projection that is wrong, if any.

        A projection is wrong if it is outside the set, or if another point of the set is closer.
        """
        if not self.projects:
            return None
        for at, v in enumerate(margins):
            near = self.project(v.copy(), label)
            size = 1.0 + self.radius + np.abs(v).max()
            for other in margins:
                outside = other @ near - self.support(other.copy(), label)
                if outside > _PROJECTION * size * (1.0 + np.abs(other).max()):
                    return f"project returns a point that is outside the set by {outside:.3g}"
            # At the projection p of v, v - p is normal to the set (Kolmogorov's criterion).
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
                f"loss: {method} must return an array of shape ({self.n_classes},), got "
                f"{type(returned).__name__} of shape {np.shape(returned)}"
            )
            raise ValueError(msg)
        # The comparison is also false for NaN.
        if not (point >= -_ROUNDING * self._size()).all() or not np.isfinite(point).all():
            msg = f"loss: {method} must return finite numbers of at least 0, got {returned!r}"
            raise ValueError(msg)
        np.maximum(point, 0.0, out=point)
        if point[label] != 0.0:
            msg = f"loss: {method} must return 0 at the label, got {point[label]:.3g}"
            raise ValueError(msg)
        return point

    def _size(self) -> float:
        return getattr(self, "radius", 1.0)


def own_loss(loss: Any, n_classes: int) -> _core._Loss:
    """Adapt a loss written in Python to the core, after checks on sample margins."""
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
    """Return the solver for a loss; raise a ValueError if it requires a missing projection."""
    if isinstance(loss, str) or loss.projects:
        return solver
    if smoothing > 0.0 or solver in ("block-descent", "newton"):
        what = "smoothing" if smoothing > 0.0 else f'solver: "{solver}"'
        msg = f"{what} requires a method project, which {type(loss.loss).__name__} does not have"
        raise ValueError(msg)
    return "block-frank-wolfe" if solver == "auto" else solver


def core_loss_of(loss: Any, n_classes: int) -> _core._Loss:
    """Convert any loss to the form that the core expects."""
    return core_loss(loss) if isinstance(loss, str | Loss) else own_loss(loss, n_classes)


def qualify_certificate(model: Any, problem: _core._Loss, X: Any, codes: NDArray[Any]) -> None:
    """State the condition of the certificate of a custom loss, or remove the certificate."""
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
