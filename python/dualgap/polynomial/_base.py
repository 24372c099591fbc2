"""Base classes of the polynomial estimators."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_is_fitted, check_X_y

from dualgap import _core
from dualgap._choices import Linear, Penalty, Reoptimize, Selection, check_choice
from dualgap._estimator import (
    CertifiedEstimator,
    EpochModels,
    refuse_unused,
    require,
    restores_on_error,
    watch,
)
from dualgap._estimator.settings import polynomial_settings
from dualgap._estimator.signature import rank
from dualgap._validation import (
    FloatArray,
    MatrixLike,
    check_rows,
    check_rows_and_targets,
    check_targets,
    core_rows,
    resolve_threads,
)
from dualgap.chunks import Chunks
from dualgap.polynomial._columns import Columns
from dualgap.polynomial._radius import default_radius

_PARAMETERS = """
    Parameters
    ----------
    n_components : int, default=30
        Maximum number of basis vectors. The fit adds one vector at a time, and drops vectors whose
        output weights become zero.
    penalty : {"l1/l2", "l1/linf", "l1"}, default="l1/l2"
        Norm of the output layer that `radius` bounds: a norm over the outputs of each basis vector,
        summed over basis vectors (paper, Table 1).
    radius : float, optional
        Bound on the norm, in units of the outputs (basis vectors have unit length). The objective
        is a sum over rows, not a mean. None: 3 n / d^2 for n rows of d features, but at most 100
        and at least 1 (for more than 100 features, 100 / d), divided by the mean square of the
        features; for a regressor, times a twentieth of the standard deviation of the targets (of
        their root mean square, unless ``linear="explicit"``).
    alpha : float, default=1.0
        Ridge penalty on the explicit linear weights and intercepts: the objective includes
        alpha/2 times their squared norm. A regressor subtracts the mean of each target before the
        fit, so its penalty is on the difference of an intercept and that mean.
    linear : {"explicit", "augment", None}, default="explicit"
        Linear terms. "explicit": weights and intercepts with a ridge penalty, not bounded by
        `radius`. "augment": basis vectors have an entry for a constant feature 1. A factorization
        machine then has no intercept, because it leaves out the square of that feature. None: no
        linear terms.
    reoptimize : {"full", "output"}, default="full"
        Layers that are optimised again after each new basis vector. "full": the basis and the
        output layer (not convex). "output": only the output layer (convex).
    selection : {"refined", "power", "initial", "random-refined", "random", "best-row", "exact"}, \
default="refined"
        How basis vectors are selected. "refined" takes the eigenvector with the largest absolute
        eigenvalue and refines it; with up to 64 features it refines the eigenvectors of all
        outputs and takes the best. The other values serve for comparison (paper, section 6.2):
        "power" finds that eigenvector by the power method and refines it; "exact" solves 2^(m - 1)
        eigenvalue problems for "l1/linf" with m <= 16 outputs (at most 512 features), which makes
        the duality gap tight.
    selection_tol : float, default=1e-2
        Relative tolerance of the eigenvalue solver that selects basis vectors.
    validation_fraction : float, optional
        Fraction of the rows to hold out (stratified by class, except for the loss
        "binary-logistic"). The fit keeps the number of basis vectors that scores best on them;
        ``history_`` has all scores.
    tol : float, default=1e-3
        Duality gap at which the fit has converged, relative to the objective. The objective is
        then at most ``1 + tol / (1 - tol)`` times its minimum. A gap no larger than rounding
        error counts as 0 for any positive `tol`.
    max_iter : int, default=1000
        Maximum number of iterations (each adds at most one basis vector).
    warm_start : bool, default=False
        Whether to start from the basis of the previous fit, for example to continue an interrupted
        fit.
    n_jobs : int, optional
        Number of threads; None and -1 mean all cores. The model does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the eigenvalue solver's start vectors and of the validation split.
    verbose : int, optional
        Progress on stderr. None: after two seconds, a bar with the gap and the remaining time, on a
        terminal only. 0: nothing. 1: the bar from the start; without a terminal, one line per
        iteration, at most one per second.
    callback : callable, optional
        Called after each iteration as ``callback(epoch, seconds, objective, dual_objective)``.
        The fit stops if it returns a true value.

    Attributes
    ----------
    components_ : ndarray of shape (n_bases, n_features [+ 1])
        Basis vectors of unit length. With ``linear="augment"``, the last entry of each belongs to
        the constant feature.
    output_ : ndarray of shape (n_bases, n_outputs)
        Output layer U. With H = ``components_``, the outputs are
        ``K(X, H) U + X coef_.T + intercept_``.
    radius_ : float
        The bound of the fit.
    n_nonzero_bases_ : int
        Number of basis vectors with a non-zero weight for at least one output.
    coef_, intercept_ : ndarray of shape (n_outputs, n_features) and (n_outputs,)
        Linear terms; zero unless ``linear="explicit"``.
    objective_, dual_objective_, duality_gap_ : float
        Objective of the model, a lower bound on the objective of any model within ``radius_``, and
        their difference. For "l1" the bound is tight up to the tolerance of the eigenvalue solver.
        For the other penalties the gap is larger, because it allows for a better basis vector that
        selection may have missed.
    relative_gap_ : float
        ``duality_gap_ / objective_``, which the fit compares with ``tol``.
    null_objective_ : float
        Objective of the model without basis vectors or linear terms. With ``linear="explicit"``, a
        regressor without them predicts the mean of each target.
    converged_ : bool
        Whether the gap reached ``tol``. If not, a ``ConvergenceWarning`` is issued, unless the
        callback or the validation rows ended the fit earlier.
    certificate_ : str
        Scope of the bound: the convex problem that it refers to and, for models of more than 1024
        features, the probability with which it holds.
    n_iter_ : int
        Number of iterations.
    history_ : dict of ndarray
        Values after each iteration: epoch, seconds, objective, dual_objective (the best bound so
        far), gap, n_components and, with validation rows, validation_loss and validation_score
        (accuracy, or minus the mean loss).
    n_features_in_, feature_names_in_
        As in scikit-learn.
"""


_Class = TypeVar("_Class", bound=type)


def documented(own: str = "", notes: str = "", labels: str = "") -> Callable[[_Class], _Class]:
    """Insert the sections on parameters and attributes, and `notes`, before a docstring's examples.

    `own` describes the parameters that only this class has. `labels` describes the attributes that
    only this class has.
    """

    def append(cls: _Class) -> _Class:
        title = "Parameters\n----------\n"
        shared, attributes = inspect.cleandoc(_PARAMETERS).split("\n\n", 1)
        entries = re.split(r"\n(?=\w)", own + shared.removeprefix(title))
        entries.sort(key=lambda entry: rank(entry.split(" ", 1)[0]))
        parameters = title + "\n".join(entry for entry in entries if entry)
        text, _, examples = inspect.cleandoc(cls.__doc__ or "").partition("\n\nExamples\n")
        sections = [text, parameters, f"{attributes}\n{labels}", notes, f"Examples\n{examples}"]
        text = "\n\n".join(inspect.cleandoc(section) for section in sections if section)
        cls.__doc__ = f"{text}\n"
        return cls

    return append


def check_training(estimator: Any, X: Any, y: Any, **options: Any) -> tuple[Any, Any]:
    """Validate training data. The rows of `Chunks` are already validated."""
    if not isinstance(X, Chunks):
        return check_rows_and_targets(estimator, X, y, **options)
    y = check_targets(y, numeric=options.get("y_numeric", False))
    # The column of zeros stands in for X, because this check needs only the number of rows of X.
    _, y = check_X_y(np.zeros((X.shape[0], 1), dtype=np.int8), y, **options)
    estimator.n_features_in_ = X.shape[1]
    return X, y


@dataclass(kw_only=True, eq=False, repr=False)
class PolynomialModel(CertifiedEstimator):
    """Parameters of a polynomial model, and its attributes after a fit."""

    n_components: int = field(default=30, kw_only=False)
    penalty: Penalty = "l1/l2"
    reoptimize: Reoptimize = "full"
    linear: Linear | None = "explicit"
    alpha: float = 1.0
    selection: Selection = "refined"
    selection_tol: float = 1e-2

    components_: FloatArray = field(init=False)
    output_: FloatArray = field(init=False)
    coef_: FloatArray = field(init=False)
    intercept_: FloatArray = field(init=False)
    n_features_in_: int = field(init=False)

    _kernel: ClassVar[str]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("linear", self.linear, Linear, None)
        if self.linear != "explicit":
            refuse_unused(self, ["alpha"], f"linear={self.linear!r}")

    @property
    def n_nonzero_bases_(self) -> int:
        """Number of basis vectors with a non-zero weight for at least one output."""
        check_is_fitted(self)
        return int(np.count_nonzero(np.abs(self.output_).max(axis=1, initial=0.0)))

    def _model(self) -> Any:
        linear = None
        if self.linear == "explicit":
            linear = np.vstack([self.coef_.T, self.intercept_])
        return {"basis": self.components_, "output": self.output_, "linear": linear}

    def _check_restored(self) -> None:
        require(isinstance(self.n_features_in_, int) and self.n_features_in_ > 0)
        if not hasattr(self, "components_"):
            return
        n_outputs = self.output_.shape[1]
        width = self.n_features_in_ + (self.linear == "augment")
        require(self.components_.shape == (len(self.output_), width))
        require(self.coef_.shape == (n_outputs, self.n_features_in_))
        require(self.intercept_.shape == (n_outputs,))
        for array in (self.components_, self.output_, self.coef_, self.intercept_):
            require(array.dtype == np.float64 and np.isfinite(array).all())

    def _outputs(self, X: Any) -> FloatArray:
        check_is_fitted(self, "components_")
        if isinstance(X, Chunks):
            return np.concatenate([self._outputs(rows) for rows in X.chunks])
        X = check_rows(self, X, reset=False)
        return _core.predict_polynomial(
            core_rows(X),
            self._model(),
            kernel=self._kernel,
            augmented=self.linear == "augment",
            n_threads=resolve_threads(self.n_jobs),
        )


@dataclass(frozen=True)
class Training:
    """Validated data of a fit, and the loss."""

    X: Any
    targets: NDArray[Any]
    n_outputs: int
    weights: FloatArray | None
    loss: str
    validation: tuple[Any, NDArray[Any]] | None
    stratify: bool
    means: FloatArray | None = None
    """Means that were subtracted from the targets."""

    def split(self, share: float, seed: int) -> Training:
        """Hold out a fraction of the rows for validation."""
        if isinstance(self.X, Chunks):
            msg = "validation_fraction: Chunks cannot be split; pass validation_data to fit instead"
            raise ValueError(msg)
        train, held_out = train_test_split(
            np.arange(self.X.shape[0]),
            test_size=share,
            random_state=seed % 2**32,
            stratify=self.targets if self.stratify else None,
        )
        train, held_out = np.sort(train), np.sort(held_out)
        return Training(
            X=self.X[train],
            targets=self.targets[train],
            n_outputs=self.n_outputs,
            weights=None if self.weights is None else self.weights[train],
            loss=self.loss,
            validation=(self.X[held_out], self.targets[held_out]),
            stratify=self.stratify,
            means=self.means,
        )

    def deviation(self) -> float | None:
        """Return the root mean squared norm of numeric targets, or None for classes.

        For centred targets, this is the root of the sum of their variances.
        """
        if self.loss != "squared":
            return None
        unit = float(np.abs(self.targets).max(initial=0.0)) or 1.0
        squares = ((self.targets / unit) ** 2).sum(axis=1)
        return unit * float(np.sqrt(np.average(squares, weights=self.weights)))

    def uncentred(self, model: dict[str, Any]) -> dict[str, Any]:
        """Add the means of the targets to the intercepts of a model of the centred targets."""
        if self.means is None:
            return model
        linear = model["linear"].copy()
        linear[-1] += self.means
        return {**model, "linear": linear}


Validation = tuple[Any, NDArray[Any]]


def centred(
    targets: FloatArray, weights: FloatArray | None, validation: Validation | None
) -> tuple[FloatArray, Validation | None, FloatArray]:
    """Subtract the means of the targets, also from the targets of the validation rows."""
    means = weighted_means(targets, weights)
    # The core rejects validation rows with another number of targets.
    if validation is not None and validation[1].shape[1] == len(means):
        validation = (validation[0], validation[1] - means)
    return targets - means, validation, means


def weighted_means(targets: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return the mean of each target, or exactly its value if it is constant."""
    if weights is not None:
        targets, weights = targets[weights > 0.0], weights[weights > 0.0]
        weights = weights / weights.max(initial=0.0)
    if not len(targets):
        return np.zeros(targets.shape[1])
    means = np.average(targets, axis=0, weights=weights)
    return np.where((targets == targets[0]).all(axis=0), targets[0], means)


@dataclass(kw_only=True, eq=False, repr=False)
class FittedPolynomial(PolynomialModel):
    """A polynomial model fitted with a single radius."""

    radius: float | None = None
    validation_fraction: float | None = None
    warm_start: bool = False

    radius_: float = field(init=False)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        fraction = self.validation_fraction
        if fraction is not None and not 0.0 < fraction < 1.0:
            msg = f"validation_fraction: must be between 0 and 1 (exclusive), got {fraction!r}"
            raise ValueError(msg)

    @restores_on_error
    def fit(
        self,
        X: MatrixLike | Chunks,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        validation_data: tuple[MatrixLike, ArrayLike] | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like, CSR matrix or Chunks of shape (n_samples, n_features)
            Training rows. float32 and float64 rows are read in place, including memory-mapped
            files and :class:`dualgap.Chunks`. The fit also needs memory for one number per row and
            output, and for a few dozen copies of the model.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            For a classifier, one class label per row, of any type; for a regressor, target
            values. All targets share the basis.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row's loss.
        validation_data : tuple (X, y), optional
            Rows used to choose the number of basis vectors, instead of
            ``validation_fraction``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters are invalid; the message names the argument.
        """
        self._check_parameters()
        rows = None if isinstance(X, Chunks) else X
        training = self._training(X, y, sample_weight, validation_data)
        self._fit(training, (rows, y, sample_weight))
        return self

    def _training(self, X: Any, y: Any, sample_weight: Any, validation_data: Any) -> Training:
        """Validate the data of a fit."""
        raise NotImplementedError

    def _fit(self, data: Training, given: tuple[Any, Any, Any]) -> None:
        settings = polynomial_settings(self, self._kernel, data.loss, data.n_outputs)
        if data.validation is None and self.validation_fraction is not None:
            data = data.split(self.validation_fraction, settings["seed"])
        init = self._previous(data.X.shape[1], data.n_outputs)
        if init is not None and data.means is not None:
            init["linear"][-1] -= data.means
        columns = Columns.of(data.X, init, int(self.n_components) + data.n_outputs)
        X, init, validation = columns.narrow_fit(data.X, init, data.validation)
        if validation is not None:
            settings["validation"] = (core_rows(validation[0]), validation[1])
        settings["sample_weight"], settings["target_means"] = data.weights, data.means
        settings["init"] = init
        self.radius_ = settings["radius"] = (
            default_radius(X, data.weights, data.deviation())
            if self.radius is None
            else float(self.radius)
        )
        chunks = [core_rows(rows) for rows in (X.chunks if isinstance(X, Chunks) else [X])]

        def core(changed: Any) -> Any:
            found = _core.fit_polynomial(chunks, data.targets, changed)
            return data.uncentred(columns.widen(found))

        width, m = X.shape[1] + (self.linear == "augment"), data.n_outputs
        sizes: list[int] = []

        def model_of_epoch(arrays: Any, _: int) -> dict[str, Any]:
            output = arrays[1].reshape(-1, m)
            sizes.append(len(output))
            model = {
                "basis": arrays[0].reshape(width, -1).T,
                "output": output,
                "linear": arrays[2].reshape(-1, m) if len(arrays) > 2 else None,
                "certain": width <= _core.MAX_FACTORISED,
                "scale": np.nan,
                "path": {"n_components": np.array(sizes)},
            }
            return data.uncentred(columns.widen(model))

        models = EpochModels(core, settings, type(self)._store, model_of_epoch)
        stopping = (settings["max_iter"], settings["tol"])
        with watch(self, stopping, data=given, models=models) as callback:
            result = core({**settings, "callback": callback})
            self._store(result, data.X)

    def _previous(self, n_features: int, n_outputs: int) -> Any:
        if not (self.warm_start and hasattr(self, "components_")):
            return None
        width = n_features + (self.linear == "augment")
        if self.components_.shape[1] != width or self.output_.shape[1] != n_outputs:
            msg = (
                f"warm_start: the previous fit had another number of features or outputs than X "
                f"({n_features}) and y ({n_outputs}); set warm_start=False"
            )
            raise ValueError(msg)
        return self._model()

    def _store(self, result: Any, X: Any = None) -> None:
        self.components_ = np.ascontiguousarray(result["basis"])
        self.output_, linear = result["output"], result["linear"]
        if linear is None:
            linear = np.zeros((self.n_features_in_ + 1, self.output_.shape[1]))
        self.coef_ = np.ascontiguousarray(linear[:-1].T)
        self.intercept_ = linear[-1].copy()
        run = certified(result, float(self.tol))
        if run["outcome"] == "exhausted":
            run["outcome"] = "full" if len(self.components_) >= self.n_components else "idle"
        self._store_run(run, X)
        self.certificate_ = certificate(result)


def certificate(result: Any) -> str:
    """Describe the optimum that the dual value bounds, and the probability of the bound."""
    bound = "optimum over all bases and output layers within the radius"
    return bound if result["certain"] else f"{bound}, with probability 1 - 1e-9"


def certified(result: Any, tol: float) -> dict[str, Any]:
    """Return the core's result with the certificate of the model that the fit returns."""
    history = {**result["history"], **result["path"]}
    run = {**result, "history": history, "null_objective": result["scale"]}
    if "validation_score" in history:
        # The validation score may choose an earlier model, which has its own certificate. This is a
        # choice, like a stop by the callback, so it does not count as non-convergence.
        best = int(np.argmax(history["validation_score"]))
        for name in ("objective", "dual_objective"):
            run[name] = float(history[name][best])
        gap = float(history["gap"][best])
        converged = gap <= tol * run["objective"]
        kept = "stopped" if result["outcome"] in ("converged", "exhausted") else result["outcome"]
        run["outcome"] = "converged" if converged else kept
    return run
