"""Structured support vector machines, trained to a given duality gap.

Lacoste-Julien, Jaggi, Schmidt, Pletscher: Block-coordinate Frank-Wolfe optimization for structural
SVMs (ICML 2013); Osokin et al.: Minding the gaps for block Frank-Wolfe optimization of structured
SVMs (ICML 2016); Boileau, Lamouchi, St-Arnaud: Scalable optimization algorithms for the structured
SVM (2019).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap import _core
from dualgap._choices import Projection, Sampling, Step, StructuredSolver
from dualgap._estimator import (
    CertifiedEstimator,
    EpochModels,
    ordered,
    refuse_unused,
    require,
    restores_on_error,
    warn_user,
    watch,
)
from dualgap._estimator.probabilities import STRUCTURED_ADVICE, without_probabilities
from dualgap._estimator.settings import shares_record, structured_settings
from dualgap._estimator.warm import problem_hash
from dualgap._tuning.path import check_interval, warn_of_pieces
from dualgap._validation import FloatArray, check_positive, example_weights, regularization_of
from dualgap._validation.columns import check_columns, feature_names, set_feature_names
from dualgap.structured._arrays import Examples, count_examples, numpy_examples, signs_array
from dualgap.structured._oracle import PythonOracle
from dualgap.structured._predictor import Predictor
from dualgap.structured.models import BuiltinModel, Coding, Model
from dualgap.structured.path import StructuredPiece, path_pieces

__all__ = ["StructuredSVM"]

# Solvers that keep a dual point for each example, which warm starts and paths require.
BLOCKWISE = ("auto", "block-frank-wolfe")


@ordered
@without_probabilities(STRUCTURED_ADVICE)
@dataclass(kw_only=True, eq=False, repr=False)
class StructuredSVM(CertifiedEstimator):
    """Max-margin training of a structured model, with a certificate of optimality.

    Minimises ``1/2 ||w||^2 + C sum_i weight_i H_i(w)`` with the structured hinge loss
    ``H_i(w) = max_y [loss_i(y) - <w, phi(x_i, y_i) - phi(x_i, y)>]`` (margin rescaling). The
    objective is reported as ``P = lambda/2 ||w||^2 + mean loss`` with ``lambda = 1 / (C * total
    weight)``, which is ``1 / (C * total weight)`` times the expression above.

    Parameters
    ----------
    model : MulticlassModel, MultilabelModel, ChainModel, MatchingModel or Model
        Defines joint features, loss and decoding. A `Model` of your own is any object with the
        methods of that protocol. Parameters of a built-in model can be tuned by names such as
        ``model__boundaries``.
    C : float, default=1.0
        Weight of the losses relative to the regulariser.
    radius : float, optional
        Bound on ``||w||`` for "extragradient", whose objective is the mean loss alone; by default
        ``sqrt(P(0) / lambda)``, which bounds the norm of the optimum of the regularised problem.
    signs : array-like of shape (n_weights,), optional
        Signs that the weights must have, in the order of `coef_`: 1 for weights that must not be
        negative, -1 for weights that must not be positive, 0 for all other weights. The certificate
        then covers only models that satisfy the signs. Only for "auto" and "block-frank-wolfe",
        without `averaging`. Fits with signs do not continue with Newton's method, so scale features
        of different sizes first.
    solver : {"auto", "block-frank-wolfe", "frank-wolfe", "away-frank-wolfe", \
"projected-gradient", "subgradient", "extragradient"}, default="auto"
        "auto" begins with "block-frank-wolfe". If it would need more than 50 further passes at the
        current rate (for example with features of different scales or a small `tol`), and there are
        at most 2000 weights, the fit continues with Newton's method on the labellings found so far.
        An epoch is then one decoding of all examples and one solution of the problem restricted to
        these labellings. "block-frank-wolfe" takes one step per example. For each step,
        "frank-wolfe" and "away-frank-wolfe" pass over all examples, on all threads. "subgradient"
        is Pegasos, and "projected-gradient" is its batch form, with one step per pass.
        "extragradient" is the dual extragradient method, which solves the problem with
        ``||w|| <= radius`` in place of the regulariser.
    step : str, optional
        For "auto" and "block-frank-wolfe" one of "frank-wolfe" (default), "pairwise" and "away";
        for "frank-wolfe" one of "frank-wolfe" (default) and "scheduled"; for "away-frank-wolfe" one
        of "away" (default) and "pairwise".
    sampling : {"permutation", "uniform", "gap"}, default="permutation"
        Order in which "block-frank-wolfe" visits the examples; "gap" draws them in proportion to
        their last known duality gaps.
    cache : bool, default=False
        Whether "block-frank-wolfe" first tries the labellings found earlier, and decodes an example
        only if they do not help. For each example, it keeps at most 100 labellings that have no
        weight. The cache pays off if decoding is expensive.
    averaging : bool, default=False
        Whether "block-frank-wolfe" or "subgradient" returns the average of its iterates, in which
        the k-th iterate has weight k.
    subsample : float, default=1.0
        Fraction of the examples that a step of "away-frank-wolfe" decodes; below 1 this is the
        randomized away-step method.
    projection : {"euclidean", "entropic"}, optional
        Distance in which "extragradient" projects: "euclidean" or "entropic" for `MulticlassModel`
        and `MatchingModel` (default "euclidean"); "entropic" for `ChainModel` and
        `MultilabelModel`.
    verify_decoder : bool, default=True
        Whether ``decode`` of a `Model` of your own is compared with its ``loss_augmented_decode``
        after the fit. Set to False if the two choose among different labels, as in ranking.
    exact_decoder : bool, default=True
        Whether ``loss_augmented_decode`` of a `Model` of your own returns maximisers. If not (local
        search, graph cuts), there is no certificate, and `solver` must be "auto" or
        "block-frank-wolfe".
    tol : float, default=1e-2
        Duality gap at which the fit has converged, relative to the objective. The objective is then
        at most ``1 + tol / (1 - tol)`` times its minimum. A gap no larger than rounding error
        counts as 0 for any positive `tol`.
    max_iter : int, default=1000
        Maximum number of passes over the examples.
    warm_start : bool, default=False
        Whether a fit ("auto" and "block-frank-wolfe" only) continues the previous fit, if examples,
        labels, weights and model are the same (`C`, `tol` and `step` may change).
    n_jobs : int, optional
        Number of threads; None and -1 mean all cores. The result does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the order of the examples.
    verbose : int, optional
        Progress on stderr. None: after two seconds, a bar with the gap and the remaining time, on a
        terminal only. 0: nothing. 1: the bar from the start; without a terminal, one line per pass,
        at most one per second.
    callback : callable, optional
        Called after each pass as ``callback(epoch, seconds, objective, dual_objective)``. Values
        that were not evaluated are NaN. A true return value stops the fit.

    Attributes
    ----------
    coef_ : ndarray of shape (n_weights,)
        The weights, in the order of the model's joint features.
    parameters_ : dict of ndarray
        The same weights as named arrays, views of `coef_` (built-in models).
    classes_ : ndarray of shape (n_classes,)
        The classes in training, sorted (`MulticlassModel` and `ChainModel`).
    n_features_in_ : int
        Number of features of a row, a position or a pair (built-in models).
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if the examples are a table or a list of tables (built-in models).
    n_iter_ : int
        Number of passes.
    oracle_calls_ : int or None
        Number of decodings by steps and certificates ("block-frank-wolfe"); None in the models that
        a callback sees during the fit.
    objective_, dual_objective_, duality_gap_, null_objective_ : float
        The objective P of the model, a lower bound on the objective of any model, their difference,
        and the objective of ``w = 0``. The first two account for rounding, so they hold in exact
        arithmetic. The model is the best model that the fit evaluated, including ``w = 0``; the
        bound is the highest bound that the fit found.
    relative_gap_ : float
        ``duality_gap_ / objective_``, which is compared with `tol`.
    converged_ : bool
        Whether the gap reached `tol`.
    certificate_ : str
        Scope of the bound. "convex optimum": it holds for every model. For a custom `Model`, "exact
        if the decoder is" (with ", unverified" if it was not compared with ``decode``). Otherwise
        "none: " and the reason.
    history_ : dict of ndarray
        For each pass: epoch, seconds, objective, dual_objective and gap of the best model so far,
        and solver (its name; "newton" once Newton's method has taken over). Values are NaN in
        passes without an evaluation, because an evaluation costs another pass.

    Notes
    -----
    Memory: a fit copies the examples, without zeros if most values are 0. In addition,
    "block-frank-wolfe" keeps three weight vectors (five with `averaging`) and a sparse vector over
    the parts of each example (for a chain, at most the labels and transitions of its active
    labellings); with `cache` or away and pairwise steps it also keeps these labellings.
    "subgradient" keeps two weight vectors (three with `averaging`), "frank-wolfe" 18,
    "extragradient" 20, and "away-frank-wolfe" one vector plus, for each active vertex, the
    labellings of all examples. For a custom `Model`, the parts are the weights: the fit keeps a
    feature vector per example, sparse if most of its values are 0. Pickles contain the weights
    once, without the state for ``warm_start``.

    The certificate of a custom `Model` holds if its ``loss_augmented_decode`` is exact. If a label
    that it returns scores less than an earlier label, an error is raised. If ``decode`` finds a
    better label after the fit, or fails, there is a warning and no certificate. Without an exact
    decoder, `dual_objective_` is still a lower bound, but `objective_` may be too small, the gaps
    are None, and the fit ends (`converged_`) when the gap appears to be small.

    Examples
    --------
    >>> import numpy as np
    >>> from dualgap.structured import ChainModel, StructuredSVM
    >>> words = [np.eye(3)[[0, 1, 2]], np.eye(3)[[2, 1]]]
    >>> labels = [["a", "b", "c"], ["c", "b"]]
    >>> svm = StructuredSVM(ChainModel(), C=10, random_state=0).fit(words, labels)
    >>> [list(map(str, label)) for label in svm.predict(words)]
    [['a', 'b', 'c'], ['c', 'b']]
    """

    model: BuiltinModel | Model = field(kw_only=False)
    C: float = 1.0
    solver: StructuredSolver = "auto"
    step: Step | None = None
    sampling: Sampling = "permutation"
    cache: bool = False
    averaging: bool = False
    subsample: float = 1.0
    projection: Projection | None = None
    radius: float | None = None
    signs: ArrayLike | None = None
    verify_decoder: bool = True
    exact_decoder: bool = True
    tol: float = 1e-2
    warm_start: bool = False

    coef_: FloatArray = field(init=False)
    classes_: NDArray[Any] = field(init=False)
    n_features_in_: int = field(init=False)
    oracle_calls_: int | None = field(init=False)

    # Identifies the problem that all fits of `fits` solve; None in other fits.
    _series: object = field(init=False, default=None)

    _saved: ClassVar[tuple[str, ...]] = ("_coding",)
    _first_solver: ClassVar[str] = "block-frank-wolfe"

    @restores_on_error
    def fit(self, X: Examples, y: Examples, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X, y : sequences of length n_examples
            Examples and their labels, of the kind that the model describes.
        sample_weight : array-like of shape (n_examples,), optional
            Weight of each example's loss.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or parameters; the message names the argument.
        """
        self._check_parameters()
        source, n_examples, coding = self._source(X, y)
        names = None if coding is None else feature_names(X)
        weights = example_weights(sample_weight, n_examples)
        shares = shares_record("C", self.C, weights, n_examples)
        regularization = shares["regularization"]
        identity: object = None
        if self.warm_start:
            data = (X, y, weights, self.signs)
            identity = self._series or problem_hash("model", self.model, *data)
        settings = structured_settings(self, shares, signs_array(self.signs))
        settings["start"] = self._previous(identity, regularization)

        def store(model: Self, result: Any) -> None:
            dual_point = result.get("dual_point") if model.warm_start else None
            model._end = (identity, regularization, dual_point) if model.warm_start else None
            model._store(result, source, coding, X, names)

        def model_of_epoch(arrays: Any, n_first: int) -> dict[str, Any]:
            solver = (self.solver, n_first)
            return {"weights": arrays[0], "oracle_calls": None, "solver": solver}

        core = partial(_core.fit_structured, source)
        # A custom model might not be deterministic, so a repeated fit could differ from this fit.
        builtin = coding is not None
        models = EpochModels(core, settings, store, model_of_epoch) if builtin else None
        stopping = (settings["max_iter"], settings["tol"])
        with watch(self, stopping, data=(X, y, sample_weight), models=models) as callback:
            result = core({**settings, "callback": callback})
            store(self, result)
        return self

    def _store(self, result: Any, source: Any, coding: Coding | None, X: Any, names: Any) -> None:
        compared = coding is None and self.verify_decoder and self.exact_decoder
        doubt = source[0].doubt(result["weights"]) if compared else None
        self.coef_ = result["weights"]
        self._coding = coding
        for name, attribute in (("classes", "classes_"), ("n_features", "n_features_in_")):
            self.__dict__.pop(attribute, None)
            if hasattr(coding, name):
                setattr(self, attribute, getattr(coding, name))
        set_feature_names(self, names)
        self.oracle_calls_ = result["oracle_calls"]
        if doubt is None:
            self._store_run(result, X)
            if coding is None:
                self.certificate_ = (
                    f"exact if the decoder is{'' if self.verify_decoder else ', unverified'}"
                )
        else:
            self._store_uncertified(result, doubt)
        if not self.exact_decoder:
            self.certificate_ = "none: the decoder is approximate"
            self.duality_gap_ = self.relative_gap_ = None  # type: ignore[assignment]

    def fits(
        self, X: Examples, y: Examples, Cs: FloatArray, sample_weight: ArrayLike | None = None
    ) -> Iterator[Self]:
        """Fit each C in turn, starting from the previous fit, and yield each fit.

        `C` keeps its last value; `warm_start` is restored when the iterator ends.

        Yields
        ------
        self
            Fitted with each C in turn.
        """
        kept, self.warm_start = self.warm_start, self.solver in BLOCKWISE and self.exact_decoder
        # All fits solve the same problem, so this object identifies it instead of a hash.
        self._series = object()
        try:
            for C in Cs:
                self.C = float(C)
                yield self.fit(X, y, sample_weight)
        finally:
            self.warm_start, self._series = kept, None

    @property
    def parameters_(self) -> dict[str, FloatArray]:
        """The weights as named arrays, views of `coef_`; only for built-in models."""
        check_is_fitted(self)
        return {} if self._coding is None else self._coding.parameters(self.coef_)

    def __getstate__(self) -> Any:
        # Leave out the dual point of a warm start, which is many times larger than the model.
        return {**super().__getstate__(), "_end": None}

    def _check_restored(self) -> None:
        coding: Any = self._coding
        require(isinstance(coding, Coding) and type(coding.model) is type(self.model))
        require(type(coding.n_features) is int and coding.n_features > 0)
        require(self.coef_.dtype == np.float64 and self.coef_.ndim == 1)
        require(np.isfinite(self.coef_).all(), "a weight is not finite")
        sizes = [part.size for part in coding.parameters(self.coef_).values()]
        require(sum(sizes) == len(self.coef_))
        # The core checks that the weights have the shape of the coding.
        self._predictor().predict(coding.zeros(), self.coef_)

    def _predictor(self) -> Predictor:
        return Predictor(self.model, self._coding, self.n_jobs)

    def _store_uncertified(self, result: Any, doubt: str) -> None:
        """Store the fit without a certificate; `doubt` says why its oracle may be wrong."""
        self._store_run({**result, "outcome": "stopped"})
        self.dual_objective_ = self.duality_gap_ = None  # type: ignore[assignment]
        self.relative_gap_ = None  # type: ignore[assignment]
        self.certificate_ = f"none: {doubt}"
        warn_user(
            f"the model is kept without a certificate, and its objective may be larger than "
            f"objective_: {doubt}",
        )

    def path(
        self,
        X: Examples,
        y: Examples,
        C_min: float,
        C_max: float,
        sample_weight: ArrayLike | None = None,
    ) -> list[StructuredPiece]:
        """Cover an interval of C with models whose gap is at most `tol` everywhere on it.

        The first fit solves the problem at `C_min` to half of `tol`. Its solution, scaled in
        proportion to C, has a gap that is convex in C. The next fit takes place at the largest C up
        to which this gap is at most `tol`, and so on. The estimator does not change; `C` and
        `warm_start` are not used.

        Parameters
        ----------
        X, y : sequences of length n_examples
            As in `fit`.
        C_min, C_max : float
            The interval.
        sample_weight : array-like of shape (n_examples,), optional
            As in `fit`.

        Returns
        -------
        list of StructuredPiece
            Pieces in increasing order of C, without gaps between them. If a piece does not reach
            `tol` within `max_iter` passes, its ``relative_gap`` exceeds `tol`, and there is a
            warning. A path that the callback stops ends early.
        """
        self._check_parameters()
        check_positive("tol", self.tol)
        if self.solver not in BLOCKWISE or self.averaging:
            msg = 'solver: a path requires "auto" or "block-frank-wolfe" without averaging'
            raise ValueError(msg)
        check_interval(C_min, C_max)
        if not self.exact_decoder:
            msg = "exact_decoder: a path requires an exact decoder, got exact_decoder=False"
            raise ValueError(msg)
        source, n_examples, coding = self._source(X, y)
        weights = example_weights(sample_weight, n_examples)
        shares = shares_record("C_min", C_min, weights, n_examples)
        smallest = regularization_of("C_max", C_max, weights, n_examples)
        settings = structured_settings(self, shares, signs_array(self.signs))
        settings["keep_dual"] = False
        with watch(self, is_fit=False) as callback:
            settings["callback"] = callback
            pieces = _core.structured_path(source, settings, smallest)
        predictor = Predictor(copy.copy(self.model), coding, self.n_jobs)
        found = path_pieces(pieces, (C_min, C_max), shares["regularization"], predictor)
        named = copy.copy(self)
        set_feature_names(named, None if coding is None else feature_names(X))
        warn_of_pieces(named, found, X)
        return found

    def predict(self, X: Examples) -> Any:
        """Return the highest-scoring label of each example.

        Returns
        -------
        list or ndarray of length n_examples
            Labels of the kind that the model describes: an array for `MulticlassModel`, of shape
            (n_examples,), and for `MultilabelModel`, of shape (n_examples, n_labels); else a list.
        """
        self._check_examples(X)
        return self._predictor().predict(X, self.coef_)

    def score(self, X: Examples, y: Examples, sample_weight: ArrayLike | None = None) -> float:
        """Return one minus the ratio of the predictions' loss to the largest possible loss.

        For losses that count wrong parts, this is the fraction of correct parts, such as the
        accuracy of the letters for a chain of letters. A custom `Model` is assumed to have losses
        between 0 and 1 unless it has a method ``max_loss(y)``.

        Raises
        ------
        ValueError
            For bad data, or if a `MulticlassModel` has no costs for a class that did not occur in
            training. Without costs, and in chains, a prediction counts as wrong if its true class
            did not occur in training.
        """
        self._check_examples(X)
        return self._predictor().score(X, y, self.coef_, sample_weight)

    def _advice(self, X: Any, remedy: str) -> str:
        advice = super()._advice(X, remedy)
        if self.signs is None or self.solver != "auto":
            return advice
        return f"{advice}; with signs, solver='auto' does not continue with Newton's method"

    def _check_examples(self, X: Any) -> None:
        """Raise an error if the model is not fitted or the columns differ from training."""
        check_is_fitted(self)
        if self._coding is not None:
            check_columns(self, X)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        # The core checks the other parameters that a solver does not use.
        if self.solver not in BLOCKWISE:
            refuse_unused(self, ["warm_start", "exact_decoder"], f'solver="{self.solver}"')
        if isinstance(self.model, BuiltinModel):
            unused = ["verify_decoder", "exact_decoder"]
            refuse_unused(self, unused, "a built-in model, whose decoder is exact,")

    def _source(self, X: Examples, y: Examples) -> tuple[Any, int, Coding | None]:
        """Return the core's training data, the number of examples, and the coding if any."""
        if isinstance(self.model, type):
            name = self.model.__name__
            msg = f"model: must be an object, got the class {name}; write {name}(...)"
            raise ValueError(msg)
        if isinstance(self.model, BuiltinModel):
            X, y = numpy_examples("X", X), numpy_examples("y", y)
        n_examples = count_examples(X, y)
        if isinstance(self.model, BuiltinModel):
            # A copy, because the parameters of the estimator may change after the fit.
            model = copy.copy(self.model)
            examples = model.stack(X)
            coding = model.learn(examples, y)
            return coding.core(examples, y), n_examples, coding
        oracle = PythonOracle(
            self.model,
            X,
            y,
            verify=self.verify_decoder and self.exact_decoder,
            exact=self.exact_decoder,
        )
        return (oracle, n_examples, oracle.n_weights, oracle.norm), n_examples, None

    def _previous(self, identity: object, regularization: float) -> Any:
        """Return the end point of a previous fit of this problem, rescaled to the new lambda."""
        end = getattr(self, "_end", None)
        if identity is None or end is None:
            return None
        known, before, kept = end
        if known != identity or kept is None:
            return None
        return {**kept, "weights": kept["weights"] * (before / regularization)}
