"""Who is told of a fit's epochs: the user, scikit-learn's callbacks, a bar or lines."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dualgap._estimator.display import Forecast, display
from dualgap._validation import FloatArray

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing: there are no callbacks to support."""

    def with_callbacks(method: Any) -> Any:
        """Return the method."""
        return method


__all__ = ["Callback", "CallbackSupportMixin", "Fit", "History", "run", "told", "watch"]

History: TypeAlias = dict[str, NDArray[Any]]
"""Equally long columns, a value for each epoch."""

Callback: TypeAlias = Callable[[int, float, float, float], object]
"""Called as (epoch, seconds, objective, dual_objective); a true value stops the fit."""

_Method = TypeVar("_Method", bound=Callable[..., Any])


def told(method: _Method) -> _Method:
    """Make `fit` tear scikit-learn's callbacks down however it ends.

    A fit that raises, as where it is interrupted, leaves the estimator as it was: else the classes
    of new rows would stand beside the weights of an earlier fit.
    """
    fit = with_callbacks(method)

    @functools.wraps(fit)
    def whole(self: Any, *args: Any, **named: Any) -> Any:
        before = dict(vars(self))
        try:
            return fit(self, *args, **named)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast("_Method", whole)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What there is to tell of a fit.

    Parameters
    ----------
    ends : tuple (n_epochs, tol)
        After how many epochs and at which relative gap the fit ends; None where it does not.
    unit : str, default="epoch"
        What is counted.
    data : tuple (X, y, sample_weight)
        What scorers are given; None for data that can be read only once.
    solve : callable, optional
        The same fit with other settings, as ``solve(max_iter=3)``: what it returns is what `store`
        takes.
    store : callable, optional
        Put what `solve` returned on an estimator.
    shown : callable, optional
        What `solve` would return, beside the record of its epochs, given the arrays of an epoch's
        model as the core hands them to a callback that wants them. Called once an epoch, in order.
    repeats : bool, default=True
        Whether it may be solved again, to get the model of an epoch.
    epochs : bool, default=True
        False for what the user's own callback is not told of.
    is_fit : bool, default=True
        False for what is not called `fit`, of which scikit-learn's callbacks are not told.
    """

    ends: tuple[int | None, float | None] = (None, None)
    unit: str = "epoch"
    data: tuple[Any, Any, Any] = (None, None, None)
    solve: Callable[..., Any] | None = None
    store: Callable[[Any, Any], None] | None = None
    shown: Callable[[list[FloatArray]], dict[str, Any]] | None = None
    repeats: bool = True
    epochs: bool = True
    is_fit: bool = True


@contextmanager
def watch(estimator: Any, fit: Fit) -> Iterator[Callback | None]:
    """Yield what the core is to call after each epoch of the fit that the block does.

    The block also stores the fitted attributes: scikit-learn's callbacks see them when it ends.
    """
    told_by_sklearn = fit.is_fit and bool(_callbacks(estimator))
    # Theirs may be a bar.
    verbose = 0 if estimator.verbose is None and told_by_sklearn else estimator.verbose
    shown = display(verbose, type(estimator).__name__, fit.unit, Forecast(*fit.ends))
    with ExitStack() as closing:
        observers: list[Callback] = []
        if shown is not None:
            closing.enter_context(shown)
            observers.append(shown)
        if told_by_sklearn:
            tasks = _Tasks(estimator, fit)
            closing.enter_context(tasks)
            observers.append(tasks)
        if fit.epochs and estimator.callback is not None:
            observers.append(estimator.callback)
        yield _all(observers)


def run(estimator: Any, fit: Fit) -> None:
    """Do a fit that says how it is solved and stored."""
    assert fit.solve is not None
    assert fit.store is not None
    with watch(estimator, fit) as callback:
        fit.store(estimator, fit.solve(callback=callback))


def _all(observers: list[Callback]) -> Callback | None:
    if len(observers) <= 1:
        return observers[0] if observers else None

    return _Several(observers)


class _Several:
    """Observers, of whom some may want to see the model."""

    def __init__(self, observers: list[Callback]) -> None:
        self._observers = [(each, _wants_model(each)) for each in observers]
        self._wants_model = any(wants for _, wants in self._observers)

    def __call__(self, *epoch: Any) -> bool:
        """Tell each, whatever the others answer."""
        answers = [each(*(epoch if wants else epoch[:4])) for each, wants in self._observers]
        return any(map(bool, answers))


def _wants_model(callback: object) -> bool:
    """Whether a callback is to be given the arrays of each epoch's model, as the core asks it."""
    # A mock or a proxy has every attribute, and they are true.
    return getattr(callback, "_wants_model", False) is True


class _Tasks(AbstractContextManager["_Tasks"]):
    """scikit-learn's callbacks: a fit is a task, and each epoch a task of it."""

    def __init__(self, estimator: Any, fit: Fit) -> None:
        self._estimator, self._fit = estimator, fit
        self._epochs: list[tuple[float, ...]] = []
        self._wants_model = fit.shown is not None and any(
            map(_looks_at_models, _callbacks(estimator))
        )
        X, y, sample_weight = fit.data
        weighted = {} if sample_weight is None else {"sample_weight": sample_weight}
        self._data = {"X": X, "y": y, "metadata": weighted}

    def __enter__(self) -> Self:
        self._root = self._estimator._init_callback_context(max_subtasks=self._fit.ends[0])
        self._root.call_on_fit_task_begin(estimator=self._estimator, **self._data)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            # The estimator is fitted.
            done: dict[str, Any] = {}
            self._root.call_on_fit_task_end(
                estimator=self._estimator, reconstruction_attributes=done, **self._data
            )

    def __call__(
        self,
        epoch: int,
        seconds: float,
        objective: float,
        dual_objective: float,
        arrays: list[FloatArray] | None = None,
    ) -> object:
        """End the task of an epoch; a callback may ask for an end of the fit."""
        self._epochs.append((epoch, seconds, objective, dual_objective))
        shown = self._fit.shown
        model = None if arrays is None or shown is None else shown(arrays)
        task = self._root.subcontext(task_name=self._fit.unit)
        task.call_on_fit_task_begin(estimator=self._estimator, **self._data)
        return task.call_on_fit_task_end(
            estimator=self._estimator,
            # Called only for a callback that looks at the model.
            reconstruction_attributes=lambda: self._attributes(epoch, model),
            **self._data,
        )

    def _attributes(self, epoch: int, model: dict[str, Any] | None) -> dict[str, Any] | None:
        """What a fit that ended with this epoch leaves on the estimator.

        Where the core has no model at hand, a fit up to this epoch gives it. It is the same fit,
        but for block descent on its way to a large C: that depends on `max_iter`, at most half of
        which is spent on the way, and the shorter fit takes another.
        """
        fit = self._fit
        if fit.store is None:
            return None
        if model is not None:
            result = {**self._record(), **model}
        elif fit.solve is not None and fit.repeats:
            result = fit.solve(max_iter=epoch, callback=None)
        else:
            return None
        fitted = copy.copy(self._estimator)
        # That it has not converged is no news.
        fitted._quiet = True
        fit.store(fitted, result)
        return {name: value for name, value in vars(fitted).items() if name != "_quiet"}

    def _record(self) -> dict[str, Any]:
        """The epochs so far as a run of the core reports them; NaN for what was not evaluated."""
        epochs, seconds, objectives, duals = np.array(self._epochs).T
        history: History = {
            "epoch": epochs.astype(np.int64),
            "seconds": seconds,
            "objective": objectives,
            "dual_objective": duals,
            "gap": objectives - duals,
        }
        tol = self._fit.ends[1] or 0.0
        converged = bool(history["gap"][-1] <= tol * abs(objectives[-1]))
        return {
            "history": history,
            "objective": float(objectives[-1]),
            "dual_objective": float(duals[-1]),
            "null_objective": np.nan,
            "outcome": "converged" if converged else "stopped",
        }


def _callbacks(estimator: Any) -> Any:
    """scikit-learn's callbacks of an estimator."""
    return getattr(estimator, "_skl_callbacks", ())


def _looks_at_models(callback: Any) -> bool:
    """Whether a callback asks for the model of each task."""
    hook = getattr(callback, "on_fit_task_end", None)
    return hook is not None and "fitted_estimator" in inspect.signature(hook).parameters
