"""Plots of fitted models (needs matplotlib: ``pip install "dualgap[plot]"``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dualgap._estimator import History

__all__ = ["ConvergenceDisplay"]

_QUANTITIES = ("gap", "primal", "dual")


class ConvergenceDisplay:
    """Gap, primal and dual objective of fitted models against time or passes over the data.

    Parameters
    ----------
    histories : dict of str to history
        The ``history_`` of each model under its label.
    """

    def __init__(self, histories: Mapping[str, History]) -> None:
        self.histories = dict(histories)

    @classmethod
    def from_estimator(cls, estimator: Any, *, label: str | None = None, **options: Any) -> Self:
        """Plot the history of one fitted model.

        Parameters
        ----------
        estimator : estimator
            Any fitted model with a ``history_``.
        label : str, optional
            Its label; the default is its class.
        **options
            Passed on to `plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        labels = None if label is None else [label]
        return cls.from_estimators([estimator], labels=labels, **options)

    @classmethod
    def from_estimators(
        cls, estimators: Sequence[Any], *, labels: Sequence[str] | None = None, **options: Any
    ) -> Self:
        """Plot the histories of several fitted models together.

        Parameters
        ----------
        estimators : sequence of estimators
            Fitted models with a ``history_``.
        labels : sequence of str, optional
            Their labels; the defaults are their classes, numbered.
        **options
            Passed on to `plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        for estimator in estimators:
            check_is_fitted(estimator, "history_")
        if labels is None:
            names = [type(estimator).__name__ for estimator in estimators]
            labels = names if len(names) == 1 else [f"{n} {i}" for i, n in enumerate(names, 1)]
        if len(labels) != len(estimators) or len(set(labels)) != len(labels):
            msg = "labels: there must be one label for each estimator, all different"
            raise ValueError(msg)
        histories = {name: model.history_ for name, model in zip(labels, estimators, strict=True)}
        return cls(histories).plot(**options)

    def plot(
        self,
        *,
        quantities: Sequence[str] = ("gap", "primal", "dual"),
        against: str = "seconds",
        axes: Any = None,
    ) -> Self:
        """Draw the curves; the figure and axes are kept as ``figure_`` and ``axes_``.

        Parameters
        ----------
        quantities : sequence of {"gap", "primal", "dual"}
            What to draw. The gap has a logarithmic axis of its own; primal and dual share one.
        against : {"seconds", "epoch"}, default="seconds"
            What the horizontal axis shows.
        axes : sequence of matplotlib axes, optional
            Where to draw: one for the gap and one for the objectives, as far as they are asked for.

        Returns
        -------
        self
        """
        unknown = set(quantities) - set(_QUANTITIES)
        if unknown or not quantities:
            msg = f"quantities: must be among {_QUANTITIES}, got {tuple(quantities)}"
            raise ValueError(msg)
        if against not in ("seconds", "epoch"):
            msg = f'against: must be "seconds" or "epoch", got {against!r}'
            raise ValueError(msg)
        panels = [["gap"]] if "gap" in quantities else []
        objectives = [name for name in quantities if name != "gap"]
        panels += [objectives] if objectives else []
        if axes is None:
            axes = _new_axes(len(panels))
        self.axes_ = np.atleast_1d(np.asarray(axes, dtype=object))
        if len(self.axes_) != len(panels):
            msg = f"axes: {len(panels)} are needed, got {len(self.axes_)}"
            raise ValueError(msg)
        self.figure_ = self.axes_[0].figure
        for axis, panel in zip(self.axes_, panels, strict=True):
            self._draw(axis, panel, against)
        return self

    def _draw(self, axis: Any, panel: Sequence[str], against: str) -> None:
        for index, (label, history) in enumerate(self.histories.items()):
            for name in panel:
                known = np.isfinite(history[name])
                axis.plot(
                    history[against][known],
                    history[name][known],
                    color=f"C{index}",
                    linestyle="--" if name == "dual" else "-",
                    label=label if panel == ["gap"] else f"{label} ({name})",
                )
        axis.set_xlabel("passes over the data" if against == "epoch" else "seconds")
        axis.set_ylabel("duality gap" if panel == ["gap"] else "objective")
        if panel == ["gap"]:
            axis.set_yscale("log")
        axis.legend()


def _new_axes(count: int) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        msg = 'plots need matplotlib: pip install "dualgap[plot]"'
        raise ImportError(msg) from error
    return plt.subplots(1, count, figsize=(5.5 * count, 4), layout="constrained")[1]
