"""Plots of fitted models; requires matplotlib (``pip install "dualgap[plot]"``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dualgap._estimator import History
from dualgap._validation import FloatArray

__all__ = ["ConvergenceDisplay", "CrossValidationDisplay"]

Quantity: TypeAlias = Literal["gap", "objective", "dual_objective"]
_QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)


class ConvergenceDisplay:
    """Plots duality gap, objective and dual objective of fitted models over time or epochs.

    Parameters
    ----------
    histories : dict of str to history
        The ``history_`` of each model, keyed by the model's label.
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
            Label in the legend; by default the name of the class.
        **options
            Passed to `plot`.

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
            Labels in the legend; by default the names of the classes, numbered.
        **options
            Passed to `plot`.

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
            n = len(estimators)
            msg = f"labels: must be {n} distinct labels, one per estimator, got {labels!r}"
            raise ValueError(msg)
        histories = {name: model.history_ for name, model in zip(labels, estimators, strict=True)}
        return cls(histories).plot(**options)

    def plot(
        self,
        *,
        quantities: Sequence[Quantity] | None = None,
        against: Literal["seconds", "epoch"] = "seconds",
        axes: Any = None,
    ) -> Self:
        """Plot the curves, and set ``figure_`` and ``axes_``.

        Parameters
        ----------
        quantities : sequence of {"gap", "objective", "dual_objective"}, optional
            Quantities to plot; by default all quantities with a value in at least one history (a
            fit without a certificate has only an objective). The gap gets its own panel with a
            logarithmic axis; the other two share a panel.
        against : {"seconds", "epoch"}, default="seconds"
            Quantity on the horizontal axis.
        axes : sequence of matplotlib axes, optional
            Axes to plot on, in this order: the gap, then the objectives, if they are plotted.

        Returns
        -------
        self
        """
        if quantities is None:
            quantities = [name for name in _QUANTITIES if self._has(name)]
        unknown = set(quantities) - set(_QUANTITIES)
        if unknown or not quantities:
            msg = f"quantities: must be one or more of {_QUANTITIES}, got {tuple(quantities)}"
            raise ValueError(msg)
        if against not in ("seconds", "epoch"):
            msg = f'against: must be "seconds" or "epoch", got {against!r}'
            raise ValueError(msg)
        panels: list[list[Quantity]] = [["gap"]] if "gap" in quantities else []
        objectives: list[Quantity] = [name for name in quantities if name != "gap"]
        panels += [objectives] if objectives else []
        if axes is None:
            axes = _new_axes(len(panels))
        self.axes_ = np.atleast_1d(np.asarray(axes, dtype=object))
        if len(self.axes_) != len(panels):
            msg = (
                f"axes: must have length {len(panels)} for these quantities, got {len(self.axes_)}"
            )
            raise ValueError(msg)
        self.figure_ = self.axes_[0].figure
        for axis, panel in zip(self.axes_, panels, strict=True):
            self._draw(axis, panel, against)
        return self

    def _has(self, name: str) -> bool:
        columns = (history[name] for history in self.histories.values())
        return any(bool(np.isfinite(column).any()) for column in columns)

    def _draw(self, axis: Any, panel: Sequence[str], against: str) -> None:
        for index, (label, history) in enumerate(self.histories.items()):
            for name in panel:
                text = label if panel == ["gap"] else f"{label} ({name.replace('_', ' ')})"
                # A recommender fits several models in sequence; each model gets its own line.
                models = history.get("model", np.zeros(len(history["epoch"])))
                for number in np.unique(models):
                    known = (models == number) & np.isfinite(history[name])
                    axis.plot(
                        history[against][known],
                        history[name][known],
                        color=f"C{index}",
                        linestyle="--" if name == "dual_objective" else "-",
                        label=text if number == models[0] else None,
                    )
        axis.set_xlabel("epochs" if against == "epoch" else "seconds")
        axis.set_ylabel("duality gap" if panel == ["gap"] else "objective")
        if panel == ["gap"]:
            axis.set_yscale("log")
        axis.legend()


class CrossValidationDisplay:
    """Plots mean scores over C, with bounds on the scores of the exact optima.

    Parameters
    ----------
    Cs : ndarray of shape (n_Cs,)
        Values of C.
    mean_score, std_score : ndarray of shape (n_Cs,)
        Mean and standard deviation over the folds.
    bounds : ndarray of shape (n_Cs, 2)
        Bounds on the mean scores of the exact optima.
    chosen : float
        The chosen C.
    scoring : str
        Name of the score, used as axis label.
    """

    def __init__(
        self,
        Cs: FloatArray,
        mean_score: FloatArray,
        std_score: FloatArray,
        bounds: FloatArray,
        *,
        chosen: float,
        scoring: str = "score",
    ) -> None:
        self.Cs, self.mean_score, self.std_score = Cs, mean_score, std_score
        self.bounds, self.chosen, self.scoring = bounds, chosen, scoring

    @classmethod
    def from_estimator(cls, estimator: Any, **options: Any) -> Self:
        """Plot the search of a fitted `MulticlassSVCCV` or `LogisticRegressionCV`.

        Parameters
        ----------
        estimator : MulticlassSVCCV or LogisticRegressionCV
            A fitted model.
        **options
            Passed to `plot`.

        Returns
        -------
        CrossValidationDisplay
        """
        check_is_fitted(estimator, "mean_score_bounds_")
        scoring = estimator.scoring if isinstance(estimator.scoring, str) else "score"
        return cls(
            estimator.Cs_,
            estimator.mean_score_,
            estimator.std_score_,
            estimator.mean_score_bounds_,
            chosen=estimator.C_,
            scoring=scoring,
        ).plot(**options)

    def plot(self, *, axis: Any = None) -> Self:
        """Plot scores, bounds and the chosen C, and set ``figure_`` and ``axis_``.

        Error bars show one standard deviation over the folds on either side. The band shows the
        bounds, clipped to the range of the error bars.

        Parameters
        ----------
        axis : matplotlib axis, optional
            Axis to plot on; by default a new figure.

        Returns
        -------
        self
        """
        self.axis_ = _new_axes(1) if axis is None else axis
        self.figure_ = self.axis_.figure
        low, high = self.mean_score - self.std_score, self.mean_score + self.std_score
        margin = max(0.5 * float(high.max() - low.min()), 1e-3)
        bottom, top = float(low.min()) - margin, float(high.max()) + margin
        lower, upper = np.clip(self.bounds, bottom, top).T
        self.axis_.fill_between(
            self.Cs, lower, upper, alpha=0.25, color="C0", label="bounds on exact optima"
        )
        self.axis_.errorbar(
            self.Cs, self.mean_score, self.std_score, color="C0", marker="o", label="mean score"
        )
        self.axis_.axvline(self.chosen, color="C1", linestyle="--", label=f"C = {self.chosen:.3g}")
        self.axis_.set_xscale("log")
        self.axis_.set_ylim(bottom, top)
        self.axis_.set_xlabel("C")
        self.axis_.set_ylabel(self.scoring.replace("_", " "))
        self.axis_.legend()
        return self


def _new_axes(count: int) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        msg = 'plotting requires matplotlib: pip install "dualgap[plot]"'
        raise ImportError(msg) from error
    return plt.subplots(1, count, figsize=(5.5 * count, 4), layout="constrained")[1]
