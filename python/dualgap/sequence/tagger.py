"""Linear-chain taggers, which predict a label for each token of a sentence."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from dualgap import _core
from dualgap._choices import Sampling, check_choice
from dualgap._estimator import ordered, refuse_unused, require, restores_on_error, watch
from dualgap._estimator.settings import check_numbers, sequence_settings, shares_record
from dualgap._tuning.path import check_interval, warn_of_pieces
from dualgap._validation import (
    FloatArray,
    check_positive,
    example_weights,
    regularization_of,
)
from dualgap._validation.columns import set_feature_names
from dualgap.sequence._chain import TrainedChain
from dualgap.sequence._defaults import default_c, with_defaults
from dualgap.sequence._file import packed_weights, unpacked_weights
from dualgap.sequence._fitting import train
from dualgap.sequence._held_out import Validation, hold_out
from dualgap.sequence._partial import fit_completed
from dualgap.sequence._problem import read_problem
from dualgap.sequence._sentences import Sentences
from dualgap.sequence._training import Problem
from dualgap.sequence._validation import as_lists, try_values
from dualgap.sequence._warm_start import starting_point, starting_weights
from dualgap.sequence.features import expander
from dualgap.sequence.path import TaggerPiece, tagger_pieces
from dualgap.sequence.schemes import PREFIXES, Given, apply_rule

__all__ = ["SequenceTagger"]


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class SequenceTagger(TrainedChain):
    """A linear chain for sentences: structured SVM or conditional random field (CRF).

    The score of labels y of a sentence is ``sum_t <W[:, y_t], x_t> + sum_t T[y_{t-1}, y_t] +
    start[y_0] + end[y_last]``; decoding is exact. Training minimises ``1/2 ||w||^2 + C * sum_i
    loss_i(w)``, divided by C times the total weight of the sentences (their number if there are no
    weights), and reports a duality gap (Lacoste-Julien et al., ICML 2013; Le Priol et al., UAI
    2018).

    Parameters
    ----------
    loss : {"hamming", "logistic"}, default="hamming"
        "hamming": the structured hinge loss for the number of wrong labels. "logistic": the loss of
        a conditional random field, which gives probabilities.
    C : float or "validation", optional
        Weight of the losses. By default ``max(0.3, 3 / k)`` with "hamming" and ``max(3, 20 / k)``
        with "logistic", where k is the mean number of features of a token, but at least 1 (a
        feature with value x between -1 and 1 counts as x**2). CRFsuite's ``c2`` is ``1 / (2 * C)``
        for ``loss="logistic"``. "validation" holds out 15 % of the sentences, tries increasing
        multiples of the default on the remaining sentences, and fits all sentences with the C that
        scores best: by chunk F1 if the labels follow a scheme such as BIO, else by the fraction of
        labels that are correct.
    penalty : {"l2", "l1", "elastic-net"}, default="l2"
        The regulariser: ``1/2 ||w||^2``; ``||w||_1``, which makes most weights 0 and the model
        small; or ``l1_ratio * ||w||_1 + (1 - l1_ratio)/2 * ||w||^2``. CRFsuite's ``c1`` is
        ``l1_ratio / C``, and ``c2`` is ``(1 - l1_ratio) / (2 * C)``. "hamming" requires "l2".
    l1_ratio : float, default=0.5
        Weight of the L1 norm in ``penalty="elastic-net"``, from 0 to 1.
    features : {"words", "crfsuite"} or list of str, optional
        How features are computed from raw sentences, in training and prediction. By default,
        sentences already consist of features. "words": sentences are lists of words, or of tuples
        of a word and further columns (see `word_features`). A list: templates in CRF++'s notation,
        such as "U01:%x[-1,0]", for sentences of the same form. "crfsuite": dictionaries of
        features, read as python-crfsuite reads them ("name:value").
    transitions : str, mask or pairs of labels, default="all"
        Which labels may follow each other. "all": any label may follow any other. "seen": like
        "all", but only transitions seen in training get a weight (CRFsuite's default). "bio" or
        "bioes": only transitions that the scheme allows ("bioes" accepts "L" and "U" for "E" and
        "S"). A mask: a boolean array of shape (n_classes, n_classes) for the sorted classes. Pairs:
        a set of allowed (from, to) pairs. Forbidden transitions are never predicted.
    invalid : {"raise", "repair", "drop"}, default="raise"
        Treatment of training sentences with labels that "bio" or "bioes" forbids: raise an error
        that shows the first sentences, repair the labels (see `repair_labels`; IOB1 becomes BIO),
        or drop the sentences.
    boundaries : bool, default=True
        Whether the first and the last label of a sentence have extra weights.
    pairs : {"all", "seen"}, optional
        Which pairs of a feature and a label have a weight: all, or those that occur together in
        training, as in CRFsuite. "all", the default with "hamming", scores a little better; "seen",
        the default with "logistic", gives smaller models and needs less memory.
    transition_features : sequence of str or of int, optional
        Features of transitions, with a weight for each pair of adjacent labels: the features whose
        names begin with one of these strings, or the given columns of a matrix. They have no
        weights for single labels.
    min_count : int, default=1
        Minimum number of tokens in which a feature must occur. Only for named features.
    hash_bits : int, optional
        Number of bits, at most 30, of a hash of the feature name. The hash is the index of the
        feature's column (the hashing trick). The model then stores no names.
    class_weight : dict, optional
        Cost of an error at a token, by its true label; 1 for labels that are not listed. With
        ``loss="logistic"``, the loss multiplies the probability of a wrong label by this cost
        (softmax-margin; Gimpel and Smith, NAACL 2010).
    sampling : {"permutation", "uniform", "gap"}, default="permutation"
        The sentences that a pass visits: each one once, or sentences drawn uniformly or in
        proportion to their duality gaps. Only for "hamming".
    tol : float, optional
        Duality gap at which the fit ends, relative to the objective; 0.2 by default with "hamming".
        By default, a fit with "logistic" ends at a gap of 0.1, or when five passes lower the
        objective by less than 2.5 % in total (with fewer than 200 sentences, not before 30 passes),
        because later passes hardly improve held-out scores. If `tol` is given, only the gap counts.
        With unknown labels, "logistic" has no gap: the fit ends when five passes lower the
        objective by a share of at most `tol` (by default 0.001).
    max_iter : int, default=1000
        Maximum number of passes over the sentences.
    warm_start : bool, default=False
        Whether a fit continues the previous fit, possibly with more, fewer or other sentences,
        features and labels. "hamming" reuses the dual variables of sentences with the same features
        and labels. If no sentence matches, it reuses all dual variables, provided that the lengths
        of the sentences are the same in the same order. Sentences without reused variables start at
        zero; the certificate covers all sentences.
        "logistic" reuses the weights of features and labels with the same names. With unknown
        labels, "hamming" uses these weights to complete the labels for the first time. A fit that
        cannot continue starts from zero, with a warning. Copies of the tagger contain the state of
        a warm start; pickles do not.
    n_jobs, random_state, verbose, callback
        As in `MulticlassSVC`: threads (all cores by default), seed, progress on stderr, and
        ``callback(epoch, seconds, objective, dual_objective)``, which may end the fit.

    Attributes
    ----------
    C_ : float
        The C of the fit.
    validation_curve_ : dict of ndarray, or None
        With ``C="validation"``: "C", the values tried, and "score", their scores on the held-out
        sentences.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    n_features_in_ : int
        Number of columns in training.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, if the sentences were a table or tables.
    feature_names_ : list of str, or None
        Names of the columns of `emission_`; None for matrices and hashed names.
    emission_ : csr_array of shape (n_columns, n_classes)
        Weight of each pair of column and label.
    transition_, boundary_ : LabelledTable
        Weights of transitions, ``transition_["B", "I"]``, and of first and last labels,
        ``boundary_["start", "B"]``; -inf if forbidden.
    state_features_, transition_features_ : dict
        The nonzero weights as dictionaries, named as in sklearn-crfsuite.
    notes_ : dict
        A dict for your own notes, empty after a fit; JSON values in it are saved with the model.
    objective_, dual_objective_, duality_gap_, relative_gap_, converged_, certificate_, n_iter_, \
history_, null_objective_
        As in `MulticlassSVC`. The solvers are "lbfgs", or "block-frank-wolfe", then "newton".

    Notes
    -----
    Sentences are lists of tokens. A token is a list of feature names, or a dictionary from names to
    strings ("name=value", weight 1), booleans or numbers (weights), or nested dictionaries, whose
    names get the prefix "name:". A sentence may also be a matrix with a row for each token, dense
    or CSR. All sentences may also be one matrix, split by the given `lengths`. Predictions ignore
    features that did not occur in training.

    The tagger works with scikit-learn's model selection:
    ``GridSearchCV(SequenceTagger(), {"C": [0.03, 0.1, 0.3]}).fit(X, y)`` with lists of sentences.

    Time: in each pass, a token takes up to m**2 operations for m labels, whatever `transitions` is.
    With hundreds of labels, "hamming" skips the rows of transitions that cannot contain a maximum.
    An interrupt takes effect even within a sentence.

    Memory: 12 bytes per token feature, or none with ``fit(..., spill=folder)``; in addition,
    "hamming" keeps five weight vectors and, for each sentence, its active labellings;
    "logistic" keeps about 15 weight vectors, fewer if they are long.

    Examples
    --------
    >>> X = [[["w=the"], ["w=cat"]], [["w=a"], ["w=dog"], ["w=ran"]]]
    >>> y = [["D", "N"], ["D", "N", "V"]]
    >>> tagger = SequenceTagger(C=10, tol=1e-3, random_state=0).fit(X, y)
    >>> tagger.predict([[["w=the"], ["w=dog"], ["w=ran"]]])
    [['D', 'N', 'V']]
    """

    loss: Literal["hamming", "logistic"] = field(default="hamming", kw_only=False)
    C: float | Literal["validation"] | None = None
    penalty: Literal["l2", "l1", "elastic-net"] = "l2"
    l1_ratio: float = 0.5
    features: Literal["words", "crfsuite"] | Sequence[str] | None = None
    transitions: Any = "all"
    invalid: Literal["raise", "repair", "drop"] = "raise"
    boundaries: bool = True
    pairs: Literal["all", "seen"] | None = None
    transition_features: Sequence[str] | Sequence[int] | None = None
    min_count: int = 1
    hash_bits: int | None = None
    class_weight: Mapping[Any, float] | None = None
    sampling: Sampling = "permutation"
    tol: float | None = None  # type: ignore[assignment]
    warm_start: bool = False

    C_: float = field(init=False)
    validation_curve_: dict[str, FloatArray] | None = field(init=False)
    notes_: dict[str, Any] = field(init=False)

    # The point at which the previous fit with warm_start ended.
    _point: Any = field(init=False, default=None)
    _digests: Any = field(init=False, default=None)

    _saved: ClassVar[tuple[str, ...]] = ("_loss", "_features")

    _remedy: ClassVar[str] = "max_iter or tol"

    @restores_on_error
    def fit(
        self,
        X: Sentences,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        token_weight: Any = None,
        lengths: ArrayLike | None = None,
        validation: Any = None,
        spill: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Fit the tagger.

        Parameters
        ----------
        X : iterable of sentences, or matrix
            Sentences of named features, matrices with a row for each token, or one matrix.
        y : iterable of sequences of labels
            The labels of each sentence; for one matrix with `lengths`, one label for each row. None
            marks an unknown label: "logistic" maximises the probability of the known labels;
            "hamming" alternates between completing the labels and fitting. Neither problem is
            convex, so there is no certificate, as `certificate_` reports. With "logistic",
            `dual_objective_` is NaN; with "hamming" it is a bound for the last completed labels.
        sample_weight : array-like of shape (n_sentences,), optional
            Weight of each sentence's loss. With weights of sentences or tokens, ``invalid="drop"``
            reads all of `y` before `X`.
        token_weight : sequence of sequences of float, optional
            Cost of an error at each token, with the shape of `y`; see `class_weight`.
        lengths : array-like of int, optional
            Number of rows of each sentence, if X is one matrix.
        validation : float or tuple (X, y), optional
            Held-out sentences, or the fraction of the sentences to hold out. The fit ends when
            their score (chunk F1, or the token accuracy) no longer improves, but not before 30
            passes, and returns the best model; ``history_["validation_score"]`` holds the scores.
        spill : path, optional
            A folder on a disk, for sentences that do not fit in memory. `X` and `y` are read once,
            in order; `y` may be None if `X` yields pairs of a sentence and its labels. The features
            are written to anonymous temporary files, which are deleted after the fit. `hash_bits`
            saves the memory of feature names, and ``pairs="seen"`` saves the memory of unused
            weights. With `lengths`, `X` may also be `Chunks` of one matrix.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or parameters; the message names the argument.
        """
        self._check_parameters()
        if spill is not None:
            refuse_unused(self, ["invalid"], "spill")
        elif y is None:
            got = "got NoneType; X, y = zip(*pairs) separates pairs of a sentence and its labels"
            msg = f"y: must be the labels of each sentence, {got}"
            raise ValueError(msg)
        X, y, sample_weight, token_weight, lengths = self._valid(
            (X, y, sample_weight, token_weight, lengths)
        )
        held = None
        if validation is not None:
            if spill is not None and isinstance(validation, Real):
                msg = "validation: with spill, pass held-out sentences (X, y)"
                raise ValueError(msg)
            given = (X, y, sample_weight, token_weight, lengths)
            (X, y, sample_weight, token_weight, lengths), held = hold_out(self, validation, given)
        self.validation_curve_ = None
        if self.C == "validation" and spill is None:
            X, y, token_weight = as_lists(X, y, token_weight, lengths)
            lengths = None
            self.validation_curve_ = try_values(self, X, y, sample_weight, token_weight)
        problem = read_problem(self, X, y, token_weight, lengths, spill)
        weights = example_weights(sample_weight, len(problem))
        completes = problem.is_partial and self.loss == "hamming"
        completion = starting_weights(self, problem) if self.warm_start and completes else None
        start = starting_point(self, problem) if self.warm_start and not completes else None
        own = (X, y, sample_weight)
        # An iterator is consumed by now, so its sentences cannot be read again.
        again = all(each is None or hasattr(each, "__len__") for each in own)
        data = own if again else (None, None, None)
        settings = self._settings(problem, weights)
        settings["start"] = start
        if completes:
            fit_completed(self, problem, settings, weights, held, completion)
        else:
            watcher = None if held is None else Validation(self, problem, held)
            train(self, problem, settings, data, watcher=watcher)
        return self

    def fits(
        self,
        X: Sentences,
        y: Any,
        Cs: FloatArray,
        sample_weight: ArrayLike | None = None,
        *,
        token_weight: Any = None,
    ) -> Iterator[Self]:
        """Fit each C in turn, starting from the previous fit, and yield each fit.

        Sets `C`. The sentences are read once.

        Yields
        ------
        self
            Fitted with each C in turn.
        """
        self._check_parameters()
        given = self._valid((X, y, sample_weight, token_weight, None))
        yield from self._fits(given, Cs)

    def _fits(self, given: Given, Cs: FloatArray, *, are_multiples: bool = False) -> Iterator[Self]:
        X, y, sample_weight, token_weight, _ = given
        problem = read_problem(self, X, y, token_weight, None)
        weights = example_weights(sample_weight, len(problem))
        if are_multiples:
            Cs = Cs * default_c(self.loss, problem, weights)
        start = None
        for C in Cs:
            self.C = float(C)
            settings = self._settings(problem, weights)
            settings["start"], settings["keep_point"] = start, True
            if problem.is_partial and self.loss == "hamming":
                fit_completed(self, problem, settings, weights)
            else:
                train(self, problem, settings, is_fit=False)
            start, self._point = self._point, None
            yield self

    def _settings(self, problem: Problem, weights: FloatArray | None) -> _core._SequenceSettings:
        chosen = with_defaults(self)
        if self.C is None:
            chosen.C = default_c(self.loss, problem, weights)
        if self.C == "validation":
            assert self.validation_curve_ is not None
            curve = self.validation_curve_
            chosen.C = curve["C"][np.argmax(curve["score"])]
        self.C_ = float(chosen.C)
        return sequence_settings(chosen, shares_record("C", chosen.C, weights, len(problem)))

    def _tolerance(self) -> float:
        return float(with_defaults(self).tol)

    def path(
        self,
        X: Sentences,
        y: Any,
        C_min: float,
        C_max: float,
        sample_weight: ArrayLike | None = None,
        *,
        token_weight: Any = None,
        lengths: ArrayLike | None = None,
    ) -> list[TaggerPiece]:
        """Cover an interval of C with taggers whose gap is at most `tol` everywhere on it.

        The first fit solves the problem at `C_min` to half of `tol`. Its solution, scaled in
        proportion to C, has a gap that is convex in C. The next fit takes place at the largest C up
        to which this gap is at most `tol`, and so on. The estimator does not change; `C` and
        `warm_start` are not used.

        Parameters
        ----------
        X, y
            As in `fit`.
        C_min, C_max : float
            The interval.
        sample_weight, token_weight, lengths
            As in `fit`.

        Returns
        -------
        list of TaggerPiece
            Pieces in increasing order of C, without gaps between them; each can predict. If a piece
            does not reach `tol` within `max_iter` passes, its ``relative_gap`` exceeds `tol`, and
            there is a warning. A path that the callback stops ends early.

        Raises
        ------
        ValueError
            For bad data or parameters; the message names the argument.
        """
        self._check_parameters()
        refuse_unused(self, ["penalty"], "a path")
        chosen = with_defaults(self)
        check_positive("tol", chosen.tol)
        check_interval(C_min, C_max)
        X, y, sample_weight, token_weight, lengths = self._valid(
            (X, y, sample_weight, token_weight, lengths)
        )
        problem = read_problem(self, X, y, token_weight, lengths)
        weights = example_weights(sample_weight, len(problem))
        shares = shares_record("C_min", C_min, weights, len(problem))
        smallest = regularization_of("C_max", C_max, weights, len(problem))
        settings = sequence_settings(chosen, shares)
        settings["keep_point"] = False
        with watch(self, is_fit=False) as callback:
            settings["callback"] = callback
            pieces = _core.sequence_path(problem.core, settings, smallest)

        def fitted(weights: FloatArray) -> SequenceTagger:
            tagger: SequenceTagger = clone(self)
            tagger._store(problem, weights)
            tagger.C_ = C_min
            return tagger

        found = tagger_pieces(pieces, (C_min, C_max), shares["regularization"], fitted)
        warn_of_pieces(chosen, found, problem)
        return found

    def _store(self, problem: Problem, weights: FloatArray) -> None:
        self._weights, self._loss = problem.kept(weights), self.loss
        self._features = self.features
        self.classes_, self.n_features_in_ = problem.classes, problem.n_features
        set_feature_names(self, problem.columns)
        self.notes_ = {}

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "_point": None, "_digests": None}

    def __copy__(self) -> SequenceTagger:
        return self._sharing_state(dict(self.__dict__))

    def __deepcopy__(self, memo: dict[int, Any]) -> SequenceTagger:
        own = {**self.__dict__, "_point": None}
        return self._sharing_state({**copy.deepcopy(own, memo), "_point": self._point})

    def _sharing_state(self, attributes: dict[str, Any]) -> SequenceTagger:
        """Return a copy with these attributes, including the state of a warm start."""
        copied = type(self).__new__(type(self))
        copied.__dict__.update(attributes)
        return copied

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "weights": packed_weights(self._weights)}

    def _restore(self, state: Mapping[str, Any]) -> None:
        attributes = dict(state)
        packed = attributes.pop("weights")
        super()._restore(attributes)
        check_choice("loss", self._loss, "hamming", "logistic")
        require(isinstance(self.n_features_in_, int) and isinstance(self.notes_, dict))
        self._weights = unpacked_weights(packed, self.classes_)

    def _check_parameters(self) -> None:
        if self.loss == "crf":  # type: ignore[comparison-overlap]
            msg = "loss: for a conditional random field, use loss=\"logistic\", got 'crf'"
            raise ValueError(msg)
        check_choice("loss", self.loss, "hamming", "logistic")
        checked = with_defaults(self)
        if isinstance(self.C, str) and self.C != "validation":
            msg = f'C: must be a positive number, None or "validation", got {self.C!r}'
            raise ValueError(msg)
        if self.C is None or isinstance(self.C, str):
            checked.C = 1.0
        check_numbers(checked)
        check_choice("pairs", checked.pairs, "all", "seen")
        expander(self.features)
        check_choice("invalid", self.invalid, "raise", "repair", "drop")
        if not isinstance(self.transitions, str) or self.transitions not in PREFIXES:
            refuse_unused(self, ["invalid"], 'transitions other than "bio" and "bioes"')
        if self.hash_bits is not None:
            refuse_unused(self, ["min_count"], "hash_bits")
            if self.hash_bits > 30:
                msg = f"hash_bits: must be at most 30, got {self.hash_bits}"
                raise ValueError(msg)
        check_choice("penalty", self.penalty, "l2", "l1", "elastic-net")
        if self.penalty != "elastic-net":
            refuse_unused(self, ["l1_ratio"], f'penalty="{self.penalty}"')
        unused = ["sampling"] if self.loss == "logistic" else ["penalty"]
        refuse_unused(self, unused, f'loss="{self.loss}"')

    def _valid(self, given: Given) -> Given:
        """Apply `invalid` to sentences whose labels the scheme forbids."""
        if self.invalid == "raise":
            return given
        return apply_rule(self.invalid, self.transitions, given)
