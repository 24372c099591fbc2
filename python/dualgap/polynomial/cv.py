"""Joint cross-validation of the radius and the number of basis vectors of polynomial networks."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from threading import Event
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.metrics import check_scoring

from dualgap._estimator import Callback, Stopper, ordered, restores_on_error, watch
from dualgap._tuning.parallel import result_of
from dualgap._tuning.search import check_scores, folds_of
from dualgap._validation import (
    FloatArray,
    MatrixLike,
    check_positive,
    check_rows_and_targets,
    check_weights,
    encode_classes,
    resolve_seed,
    resolve_threads,
)
from dualgap.polynomial._radius import default_radius
from dualgap.polynomial.classifier import PolynomialClassifier, PolynomialNetworkClassifier

__all__ = ["PolynomialNetworkClassifierCV"]

_OWN = ("radii", "cv", "scoring", "refit", "n_jobs", "random_state")

# The default radii, in units of the default radius.
_MULTIPLES = (0.1, 1.0, 10.0)

# The attributes that only the final fit sets.
_FINAL = [
    each.name
    for each in fields(PolynomialNetworkClassifier)
    if not each.init and each.name not in ("classes_", "n_features_in_", "radius_")
]


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class PolynomialNetworkClassifierCV(PolynomialClassifier):
    """Polynomial network classifier with radius and number of basis vectors from cross-validation.

    A fit adds basis vectors one at a time, so a single fit per fold and radius gives the held-out
    accuracy for every number of basis vectors. Each radius is fitted from scratch, because this
    curve must start at an empty basis. The final model is fitted on all rows.

    Parameters
    ----------
    radii : array-like of float, optional
        Radii to choose from. None: a tenth, once and ten times the default radius of
        :class:`PolynomialNetworkClassifier`.
    n_components : int, default=30
        Maximum number of basis vectors.
    loss : str, default="logistic"
        As in :class:`PolynomialNetworkClassifier`.
    cv : int, splitter or iterable, optional
        As in scikit-learn; None uses five stratified folds.
    scoring : str or callable, optional
        None scores every number of basis vectors by accuracy. A scikit-learn scorer scores only the
        final model of each fold, so the search then chooses only the radius.
    refit : bool, default=True
        Whether to fit a model with the chosen radius and number of basis vectors on all rows.
    penalty, alpha, linear, reoptimize, class_weight, selection, selection_tol, tol, max_iter
        As in :class:`PolynomialNetworkClassifier`.
    n_jobs : int, optional
        Number of fits that run in parallel during the search, and number of threads of the final
        fit; None and -1 mean all cores. The model does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed, the same for all fits.
    verbose : int, optional
        Progress on stderr, counted in finished fits; see :class:`PolynomialNetworkClassifier`.
    callback : callable, optional
        Called after each fit of the search with the number of finished fits and NaN for both
        objectives. A true return value ends the search as soon as every fold of at least one radius
        has a score. During the final fit it is called as in :class:`PolynomialNetworkClassifier`.

    Attributes
    ----------
    radii_ : ndarray of shape (n_radii,)
        The radii of the search.
    radius_, n_components_ : float and int
        The chosen radius and number of basis vectors: the pair with the best mean score. Ties go to
        the smallest number of basis vectors, then to the first radius.
    cv_scores_ : ndarray of shape (n_radii, n_sizes, n_folds)
        Scores for 1, 2, ..., ``n_components`` bases; ``n_sizes`` is 1 with ``scoring``. If a fit
        ends with fewer bases, its last score fills the remaining sizes. NaN for fits that a
        callback skipped.
    components_, output_, n_nonzero_bases_, coef_, intercept_, classes_, objective_, \
            dual_objective_, duality_gap_, relative_gap_, null_objective_, converged_, \
            certificate_, n_iter_, history_, n_features_in_, feature_names_in_
        As in :class:`PolynomialNetworkClassifier`, for the final fit. If the scores chose fewer
        bases than ``n_components``, no ``ConvergenceWarning`` is issued.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> search = PolynomialNetworkClassifierCV([1.0, 10.0], n_components=5, tol=0.2)
    >>> search.set_params(random_state=0).fit(X, y).radius_, search.n_components_
    (1.0, 5)
    """

    radii: ArrayLike | None = field(default=None, kw_only=False)
    n_components: int = 30
    cv: Any = None
    scoring: Any = None
    refit: bool = True

    radii_: FloatArray = field(init=False)
    radius_: float = field(init=False)
    n_components_: int = field(init=False)
    cv_scores_: FloatArray = field(init=False)

    _kernel = "square"

    @restores_on_error
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose the radius and the number of basis vectors, then fit on all rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Class labels of any type.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row's loss. Scores are not weighted.
        groups : array-like of shape (n_samples,), optional
            Groups, for splitters that need them.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters are invalid; the message names the argument.
        """
        self._check_parameters()
        rows, labels = check_rows_and_targets(self, X, y)
        self.classes_, _ = encode_classes(labels)
        weights = check_weights(sample_weight, rows)
        radii = self._radii(rows, weights)
        folds = folds_of(self.cv, rows, labels, groups, classifier=True)
        for train, held_out in folds:
            if not np.isin(labels[held_out], labels[train]).all():
                msg = (
                    "y: the training rows of a fold have no example of a class that its held-out "
                    "rows contain; use fewer folds"
                )
                raise ValueError(msg)
        parameters = {k: v for k, v in self.get_params(deep=False).items() if k not in _OWN}
        parameters["random_state"] = resolve_seed(self.random_state) % 2**32
        tasks = [(radius, fold) for radius in radii for fold in folds]

        def score(task: tuple[float, Any], stopped: Callable[..., bool]) -> FloatArray:
            radius, (train, held_out) = task
            changed = {"radius": radius, "n_jobs": 1, "verbose": 0, "callback": stopped}
            model = PolynomialNetworkClassifier(**{**parameters, **changed})
            # Only the final fit warns about convergence.
            model._quiet = True
            fold_weights = None if weights is None else weights[train]
            training = (rows[train], labels[train], fold_weights)
            return self._curve(model, training, (rows[held_out], labels[held_out]))

        stopping, data = (len(tasks), None), (X, y, sample_weight)
        with watch(self, stopping, data=data, unit="fit") as callback:
            threads = resolve_threads(self.n_jobs)
            with _unchanged(rows):
                curves = _in_parallel(score, tasks, threads, callback, len(folds))
            scores = np.full((len(tasks), len(curves[0])), np.nan)
            scores[: len(curves)] = curves
            self.radii_ = radii
            self._choose(radii, scores.reshape(len(radii), len(folds), -1))
            for name in _FINAL:
                self.__dict__.pop(name, None)
            if self.refit:
                self._refit(parameters, rows, labels, weights)
        return self

    def _choose(self, radii: FloatArray, scores: FloatArray) -> None:
        """Choose the best mean score; `scores` has shape (n_radii, n_folds, n_sizes).

        Scores of fits that did not run are NaN.
        """
        scores = scores.transpose(0, 2, 1)
        mean = scores.mean(axis=2).T
        # With sizes on the first axis, argmax breaks ties in favour of the smallest size.
        size, radius = np.unravel_index(np.nanargmax(mean), mean.shape)
        self.cv_scores_ = scores
        self.radius_ = float(radii[radius])
        self.n_components_ = self.n_components if self.scoring is not None else int(size) + 1

    def _refit(self, parameters: dict[str, Any], rows: Any, labels: Any, weights: Any) -> None:
        """Fit the chosen model on all rows."""
        chosen = {"radius": self.radius_, "n_components": self.n_components_}
        changed = {**chosen, "n_jobs": self.n_jobs, "verbose": 0}
        final = PolynomialNetworkClassifier(**{**parameters, **changed})
        final._quiet = self.n_components_ < self.n_components
        final.fit(rows, labels, weights)
        for name in _FINAL:
            setattr(self, name, getattr(final, name))

    def _curve(self, model: PolynomialNetworkClassifier, training: Any, test: Any) -> FloatArray:
        """Return held-out scores: one per number of basis vectors, or a single one (`scoring`)."""
        if self.scoring is not None:
            model.fit(*training)
            scores = np.array([check_scoring(model, self.scoring)(model, *test)], dtype=float)
            check_scores(scores, self.scoring)
            return scores
        model.fit(*training, validation_data=test)
        # For each number of basis vectors, use the first model that has reached it.
        sizes, scores = model.history_["n_components"], model.history_["validation_score"]
        first = np.searchsorted(np.maximum.accumulate(sizes), range(1, self.n_components + 1))
        return np.asarray(scores[np.minimum(first, len(scores) - 1)])

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.radii is None:
            return
        radii = np.atleast_1d(np.asarray(self.radii))
        if radii.ndim != 1 or not len(radii):
            msg = f"radii: must be a non-empty list of positive numbers, got {self.radii!r}"
            raise ValueError(msg)
        for radius in radii:
            check_positive("radii", radius)

    def _radii(self, rows: Any, weights: FloatArray | None) -> FloatArray:
        if self.radii is None:
            return default_radius(rows, weights, None) * np.array(_MULTIPLES)
        return np.atleast_1d(np.asarray(self.radii)).astype(np.float64)


@contextmanager
def _unchanged(rows: Any) -> Iterator[None]:
    """Raise an error if the rows change in the `with` block: all fits must use the same data."""
    before = _checksum(rows)
    try:
        yield
    except ValueError as error:
        if _checksum(rows) != before:
            raise RuntimeError(_CHANGED) from error
        raise
    if _checksum(rows) != before:
        raise RuntimeError(_CHANGED)


_CHANGED = "X changed during the fit; do not write to it from callbacks or other threads"


def _checksum(rows: Any) -> list[int]:
    parts = (rows.data, rows.indices, rows.indptr) if sp.issparse(rows) else (rows,)
    return [zlib.crc32(np.ascontiguousarray(part).data.cast("B")) for part in parts if part.size]


def _in_parallel(
    work: Callable[[Any, Callable[..., bool]], FloatArray],
    tasks: list[Any],
    n_threads: int,
    callback: Callback | None,
    at_least: int,
) -> list[FloatArray]:
    """Return the result of ``work`` for each task, in order; call the callback after each.

    After `at_least` results, a true return value of the callback skips the remaining tasks.
    Exceptions, including Ctrl-C, propagate at once; running fits stop soon.
    """
    stop = Event()
    pool = ThreadPoolExecutor(n_threads)
    try:
        found, start = [], time.monotonic()
        for future in [pool.submit(work, task, Stopper(stop.is_set)) for task in tasks]:
            found.append(result_of(future))
            seconds = time.monotonic() - start
            ends = callback is not None and callback(len(found), seconds, np.nan, np.nan)
            if ends and len(found) >= at_least:
                break
        return found
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
