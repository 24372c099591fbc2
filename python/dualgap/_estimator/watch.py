"""Callbacks after each epoch of a fit: the user's, scikit-learn's, and the progress display."""

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

from dualgap._estimator.display import Bar, Forecast, Lines, display
from dualgap._validation import FloatArray
from dualgap._validation.columns import with_missing_column

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Placeholder without methods: older versions of scikit-learn have no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Return the method unchanged."""
        return method


__all__ = [
    "Callback",
    "CallbackSupportMixin",
    "EpochModels",
    "History",
    "Stopper",
    "announce",
    "restores_on_error",
    "watch",
]

History: TypeAlias = dict[str, NDArray[Any]]
"""Columns with one value per epoch."""

Callback: TypeAlias = Callable[[int, float, float, float], object]
"""Called as (epoch, seconds, objective, dual_objective); a true return value stops the fit."""

Stopping: TypeAlias = tuple[int | None, float | None]
"""Maximum number of epochs, and the relative gap at which the fit ends."""

Data: TypeAlias = tuple[Any, Any, Any]
"""X, y and the sample weights."""

_Method = TypeVar("_Method", bound=Callable[..., Any])


def restores_on_error(method: _Method) -> _Method:
    """Decorate a `fit` so that it leaves the estimator unchanged if it raises.

    Otherwise an interrupted fit could combine the classes of new rows with the weights of an
    earlier fit. The teardown of scikit-learn's callbacks runs in every case.
    """
    fit = with_callbacks(method)

    @functools.wraps(fit)
    def whole(self: Any, *args: Any, **named: Any) -> Any:
        before = dict(vars(self))
        try:
            return fit(self, *args, **named)
        except BaseException as error:
            vars(self).clear()
            vars(self).update(before)
            if isinstance(error, ValueError):
                X = args[0] if args else named.get("X")
                better = with_missing_column(error, X)
                if better is not None:
                    raise better from error
            raise

    return cast("_Method", whole)


@dataclass(frozen=True)
class EpochModels:
    """The model that a fit would return if it ended with a given epoch.

    Parameters
    ----------
    core : callable
        Runs the fit with given settings and returns the result.
    settings : dict
        Settings of the fit, among them `tol` and `max_iter`.
    store : callable
        Called as ``store(estimator, result)``; sets the fitted attributes.
    model_of_epoch : callable
        Takes the arrays that the core passes to a callback, and the number of epochs before
        Newton's method took over. Returns the entries of the result that describe the model,
        without the record of the epochs. Called once per epoch, in order.
    """

    core: Callable[[Any], Any]
    settings: Any
    store: Callable[[Any, Any], None]
    model_of_epoch: Callable[[list[FloatArray], int], dict[str, Any]]

    def attributes(self, estimator: Any, result: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes of the estimator after a fit with this result."""
        fitted = copy.copy(estimator)
        # No warning, because the model of an early epoch is not expected to have converged.
        fitted._quiet = True
        self.store(fitted, result)
        return {name: value for name, value in vars(fitted).items() if name != "_quiet"}

    def shorter_fit(self, n_epochs: int) -> Any:
        """Return the result of a fit of at most `n_epochs` epochs.

        It takes the same steps as the original fit, with one exception: block descent may first
        solve for smaller C, for at most half of `max_iter`, so these steps depend on `max_iter`.
        """
        return self.core({**self.settings, "max_iter": n_epochs, "callback": None})


class Stopper:
    """A callback that ends a run on another thread as soon as a condition holds.

    An epoch may take a long time. The core therefore also calls `_is_stopped` within an epoch, and
    raises a RuntimeError if it returns True.
    """

    def __init__(self, condition: Callable[[], bool]) -> None:
        self._is_stopped = condition

    def __call__(self, *_: object) -> bool:
        """Return whether the run ends after this epoch."""
        return self._is_stopped()


@contextmanager
def watch(
    estimator: Any,
    stopping: Stopping = (None, None),
    *,
    data: Data = (None, None, None),
    models: EpochModels | None = None,
    unit: str = "epoch",
    notifies_user: bool = True,
    is_fit: bool = True,
) -> Iterator[Callback | None]:
    """Yield the callback that the core calls after each epoch of the fit inside the `with` block.

    The block must also store the fitted attributes, because scikit-learn's callbacks read them at
    its end.

    Parameters
    ----------
    estimator : Estimator
        The estimator whose progress is shown, and whose callbacks are called.
    stopping : tuple (n_epochs, tol)
        Maximum number of epochs, and the relative gap at which the fit ends; None for no limit.
    data : tuple (X, y, sample_weight)
        Data for scikit-learn's scorers. None if the data can be read only once.
    models : EpochModels, optional
        Models of the epochs, if callbacks may read them.
    unit : str, default="epoch"
        Name of the unit that the display counts.
    notifies_user : bool, default=True
        Whether the user's callback is called.
    is_fit : bool, default=True
        Whether scikit-learn's callbacks are called. They require that the method is `fit`.
    """
    if estimator.callback is not None and not callable(estimator.callback):
        msg = f"callback: must be callable, got {estimator.callback!r}"
        raise TypeError(msg)
    notifies_sklearn = is_fit and bool(_callbacks(estimator))
    # One of scikit-learn's callbacks may already be a progress bar.
    verbose = 0 if estimator.verbose is None and notifies_sklearn else estimator.verbose
    shown = display(verbose, type(estimator).__name__, unit, Forecast(*stopping))
    with ExitStack() as closing:
        observers: list[Callback] = []
        if shown is not None:
            closing.enter_context(shown)
            observers.append(shown)
        if notifies_sklearn:
            tasks = _Tasks(estimator, stopping, data, models, unit)
            closing.enter_context(tasks)
            observers.append(tasks)
        if notifies_user and estimator.callback is not None:
            observers.append(estimator.callback)
        yield _all(observers)


def _all(observers: list[Callback]) -> Callback | None:
    if len(observers) <= 1:
        return observers[0] if observers else None

    return _Several(observers)


def announce(callback: Callback | None, stage: str) -> None:
    """Show the stage of a fit before its first epoch, given the callback that `watch` yields."""
    observers = [each for each, _ in callback.observers] if isinstance(callback, _Several) else ()
    for each in observers or (callback,):
        if isinstance(each, Bar | Lines):
            each.stage(stage)


def user_callback(callback: Callback | None) -> Callback | None:
    """Return the user's own callback, given the callback that `watch` yields."""
    observers = [each for each, _ in callback.observers] if isinstance(callback, _Several) else ()
    for each in observers or (callback,):
        if not isinstance(each, Bar | Lines | _Tasks):
            return each
    return None


class _Several:
    """Several observers combined in one callback. Some observers may read the model."""

    def __init__(self, observers: list[Callback]) -> None:
        self.observers = [(each, _wants_model(each)) for each in observers]
        self._wants_model = any(wants for _, wants in self.observers)

    def __call__(self, *epoch: Any) -> bool:
        """Call every observer; return whether any of them stops the fit."""
        answers = [each(*(epoch if wants else epoch[:4])) for each, wants in self.observers]
        return any(map(bool, answers))


def _wants_model(callback: object) -> bool:
    """Return whether a callback needs each epoch's model. The core applies the same test."""
    # Compared with True, because mocks and proxies have every attribute, with truthy values.
    return getattr(callback, "_wants_model", False) is True


class _Tasks(AbstractContextManager["_Tasks"]):
    """Calls scikit-learn's callbacks: a fit is a task, and each epoch is a subtask."""

    def __init__(
        self,
        estimator: Any,
        stopping: Stopping,
        data: Data,
        models: EpochModels | None,
        unit: str,
    ) -> None:
        self._estimator, self._models, self._unit = estimator, models, unit
        self._n_epochs, self._tol = stopping
        self._epochs: list[tuple[float, ...]] = []
        looks = any(map(_looks_at_models, _callbacks(estimator)))
        self._wants_model = models is not None and looks
        X, y, sample_weight = data
        weighted = {} if sample_weight is None else {"sample_weight": sample_weight}
        self._data = {"X": X, "y": y, "metadata": weighted}

    def __enter__(self) -> Self:
        self._root = self._estimator._init_callback_context(max_subtasks=self._n_epochs)
        self._root.call_on_fit_task_begin(estimator=self._estimator, **self._data)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            # The estimator is fitted already, so callbacks need no further attributes.
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
        shown: tuple[list[FloatArray], int] | None = None,
    ) -> object:
        """End the task of an epoch, and return whether a callback stops the fit."""
        self._epochs.append((epoch, seconds, objective, dual_objective))
        model = None
        if shown is not None and self._models is not None:
            model = self._models.model_of_epoch(*shown)
        task = self._root.subcontext(task_name=self._unit)
        task.call_on_fit_task_begin(estimator=self._estimator, **self._data)
        return task.call_on_fit_task_end(
            estimator=self._estimator,
            # Evaluated only if a callback reads the model.
            reconstruction_attributes=lambda: self._attributes(epoch, model),
            **self._data,
        )

    def _attributes(self, epoch: int, model: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the attributes that a fit ending with this epoch would have, or None.

        If the core did not pass a model, a second fit up to this epoch computes it.
        """
        if self._models is None:
            return None
        found = self._models.shorter_fit(epoch) if model is None else {**self._record(), **model}
        return self._models.attributes(self._estimator, found)

    def _record(self) -> dict[str, Any]:
        """Return the record of the epochs so far, with NaN for values that were not evaluated."""
        epochs, seconds, objectives, duals = np.array(self._epochs).T
        history: History = {
            "epoch": epochs.astype(np.int64),
            "seconds": seconds,
            "objective": objectives,
            "dual_objective": duals,
            "gap": objectives - duals,
        }
        tol = self._tol or 0.0
        converged = bool(history["gap"][-1] <= tol * abs(objectives[-1]))
        return {
            "history": history,
            "objective": float(objectives[-1]),
            "dual_objective": float(duals[-1]),
            "null_objective": np.nan,
            "outcome": "converged" if converged else "stopped",
        }


def _callbacks(estimator: Any) -> Any:
    """Return the scikit-learn callbacks of an estimator."""
    return getattr(estimator, "_skl_callbacks", ())


def _looks_at_models(callback: Any) -> bool:
    """Return whether a callback reads the model of each task."""
    hook = getattr(callback, "on_fit_task_end", None)
    return hook is not None and "fitted_estimator" in inspect.signature(hook).parameters
