"""Taggers: a label for each token of a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from dualgap import _core
from dualgap._choices import Sampling, check_choice
from dualgap._estimator import (
    ordered,
    refuse_unused,
    require,
    restores_on_error,
    watch,
)
from dualgap._estimator.settings import check_numbers, sequence_settings, shares_record
from dualgap._tuning.path import check_interval, warn_of_pieces
from dualgap._validation import (
    FloatArray,
    check_positive,
    example_weights,
    regularization_of,
)
from dualgap.sequence._chain import TrainedChain
from dualgap.sequence._defaults import with_defaults
from dualgap.sequence._file import packed_weights, unpacked_weights
from dualgap.sequence._fitting import train
from dualgap.sequence._held_out import Validation, hold_out
from dualgap.sequence._partial import fit_completed
from dualgap.sequence._problem import read_problem
from dualgap.sequence._sentences import (
    Sentences,
)
from dualgap.sequence._training import (
    Problem,
)
from dualgap.sequence._validation import as_lists, try_values
from dualgap.sequence._warm_start import starting_point
from dualgap.sequence.features import expander
from dualgap.sequence.path import TaggerPiece, tagger_pieces
from dualgap.sequence.schemes import PREFIXES, Given, apply_rule

__all__ = ["SequenceTagger"]


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class SequenceTagger(TrainedChain):
    """A linear chain for sentences: structured SVM or conditional random field.

    The score of labels y of a sentence is ``sum_t <W[:, y_t], x_t> + sum_t T[y_{t-1}, y_t] +
    start[y_0] + end[y_last]``; the best ones are found exactly. Training minimises
    ``1/2 ||w||^2 + C * sum_i loss_i(w)`` over the sentences, divided by C times their number, with
    a duality gap (Lacoste-Julien et al., ICML 2013; Le Priol et al., UAI 2018).

    Parameters
    ----------
    loss : {"hamming", "logistic"}, default="hamming"
        "hamming": the structured hinge loss of the number of wrong labels. "logistic": a
        conditional random field, which gives probabilities.
    C : float or "validation", optional
        Weight of the loss; by default 0.3 with "hamming" and 3 with "logistic". CRFsuite's ``c2``
        is ``1 / (2 * C)`` for ``loss="logistic"``. "validation" holds out 15 % of the sentences,
        tries increasing values on the others, and fits all sentences with the one that scores
        best: by F1 of chunks if the labels are those of a scheme such as BIO, else by tokens.
    penalty : {"l2", "l1", "elastic-net"}, default="l2"
        What keeps weights small: ``1/2 ||w||^2``; ``||w||_1``, which makes most weights 0, so that
        models are small; or ``l1_ratio * ||w||_1 + (1 - l1_ratio)/2 * ||w||^2``. CRFsuite's ``c1``
        is ``l1_ratio / C``, and ``c2`` is ``(1 - l1_ratio) / (2 * C)``. Only "l2" with "hamming".
    l1_ratio : float, default=0.5
        The share of the L1 norm in ``penalty="elastic-net"``, from 0 to 1.
    features : {"words", "crfsuite"} or list of str, optional
        How features are computed from raw sentences, at training and at prediction; by default the
        sentences consist of features. "words": sentences are lists of words, or of tuples of a word
        and further columns (see `word_features`); a list: templates in CRF++'s notation, such as
        "U01:%x[-1,0]", for the same sentences; "crfsuite": features whose dictionaries mean what
        they mean to python-crfsuite ("name:value").
    transitions : str, mask or pairs of labels, default="all"
        Which labels may follow each other. "all"; "seen": all, but only those that occur in
        training have a weight (CRFsuite's default); "bio" or "bioes": what these schemes of chunks
        allow, "bioes" with "L" and "U" as other names of "E" and "S"; a boolean array of shape
        (n_classes, n_classes) for the sorted classes; or a set of allowed (from, to) pairs.
        Forbidden transitions are never predicted.
    invalid : {"raise", "repair", "drop"}, default="raise"
        The treatment of training sentences whose labels "bio" or "bioes" forbids: raise an error
        that shows the first ones, repair the labels (see `repair_labels`; IOB1 becomes BIO), or
        leave the sentences out.
    boundaries : bool, default=True
        Whether there are weights for the first and the last label of a sentence.
    pairs : {"all", "seen"}, optional
        Which pairs of a feature and a label have a weight: all, or those that occur together in
        training, as in CRFsuite. "all", the default with "hamming", scores a little better; "seen",
        the default with "logistic", makes smaller models and takes less time and memory.
    transition_features : sequence of str or of int, optional
        Features of transitions, with a weight for each pair of labels that follow each other: those
        whose names begin with one of these strings, or columns of a matrix. They have no other
        weights.
    min_count : int, default=1
        Minimum number of tokens that a feature must occur in. Only for features by name.
    hash_bits : int, optional
        Number of bits, at most 30, of the hash of a feature's name that is its column. The model
        keeps no names (the hashing trick).
    class_weight : dict, optional
        What an error costs at a token of each label; 1 for labels that are not in it. With
        ``loss="logistic"`` the factor by which the probability of a wrong label counts in the loss
        (softmax-margin; Gimpel and Smith, NAACL 2010).
    sampling : {"permutation", "uniform", "gap"}, default="permutation"
        Which sentences a pass visits: each once, or drawn, uniformly or in proportion to their
        duality gaps. Of "hamming" only.
    tol : float, optional
        Duality gap to stop at, relative to the objective. By default 0.2 with "hamming". With
        "logistic" a fit by default ends at a gap of 0.1, or once five passes together lower the
        objective by less than 2.5 %, where scores on held-out sentences no longer rise; if `tol` is
        given, the gap alone counts.
    max_iter : int, default=1000
        Maximum number of passes over the sentences.
    warm_start : bool, default=False
        Whether a fit begins where the one before ended, with more, fewer or other sentences,
        features and labels. "hamming" takes over the dual variables of sentences with the same
        features and labels, or of sentences of the same lengths in the same order if it knows none;
        other sentences start at zero, and the certificate covers all of them. "logistic" takes over
        the weights of features and labels by their names. A fit that cannot do so starts from zero,
        with a warning. Pickles do not contain the state that this needs.
    n_jobs, random_state, verbose, callback
        As in `MulticlassSVC`: threads (all cores by default), the seed, progress on stderr, and
        ``callback(epoch, seconds, objective, dual_objective)``, which may end the fit.

    Attributes
    ----------
    C_ : float
        The C of the fit.
    validation_curve_ : dict of ndarray, or None
        With ``C="validation"``: "C", the values that were tried, and "score" on the held-out
        sentences.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    n_features_in_ : int
        Number of columns in training.
    transition_ : LabelledTable
        The weights of transitions, ``transition_["B", "I"]``; -inf where forbidden.
    notes_ : dict
        Empty; what you put into it, if JSON can hold it, is saved with the model.
    objective_, dual_objective_, duality_gap_, relative_gap_, converged_, certificate_, n_iter_, \
history_, null_objective_
        The record of the fit, as for all certified estimators.

    Notes
    -----
    Sentences are lists of tokens, and a token is a list of feature names, or a dictionary from
    names to strings ("name=value", weight 1), truth values or numbers (weights), or nested ones,
    whose names come behind "name:"; a sentence may as well be a matrix with a row for each token,
    dense or CSR; or all of them may be one matrix whose sentences have the given `lengths`.
    Predictions ignore features that did not occur in training.

    For scikit-learn's model selection this is an estimator as any other:
    ``GridSearchCV(SequenceTagger(), {"C": [0.03, 0.1, 0.3]}).fit(X, y)`` with lists of sentences.

    Time: a token takes up to m**2 steps for m labels in each pass, whatever `transitions` is. With
    hundreds of labels "hamming" skips the rows of transitions that cannot hold a maximum. An
    interrupt takes effect within a sentence.

    Memory: the sentences as numbers, twelve bytes a feature of a token; with "hamming" five vectors
    of weights and for each sentence the labels that have weight; with "logistic" some 15 vectors of
    weights, fewer if they are long.

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

    # The point at which a fit with warm_start ended.
    _point: Any = field(init=False, default=None)
    _digests: Any = field(init=False, default=None)

    _saved: ClassVar[tuple[str, ...]] = ("_loss", "_features")

    _remedy: ClassVar[str] = "max_iter or tol"

    @restores_on_error
    def fit(
        self,
        X: Sentences,
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        token_weight: Any = None,
        lengths: ArrayLike | None = None,
        validation: Any = None,
    ) -> Self:
        """Fit the tagger.

        Parameters
        ----------
        X : iterable of sentences, or matrix
            Sentences of features by name, matrices with a row for each token, or one matrix.
        y : iterable of sequences of labels
            The labels of each sentence; of one matrix with `lengths`, one label for each row. None
            is a label that is not known: "logistic" maximises the probability of the known ones,
            and "hamming" completes them by the best others, fits, and repeats this. Neither problem
            is convex, so there is no certificate: `certificate_` says so. With "logistic",
            `dual_objective_` is NaN; with "hamming" it belongs to the last completed labels.
        sample_weight : array-like of shape (n_sentences,), optional
            Weight of each sentence's loss.
        token_weight : sequence of sequences of float, optional
            What an error costs at each token, shaped as `y`; see `class_weight`.
        lengths : array-like of int, optional
            Numbers of rows of the sentences where X is one matrix.
        validation : float or tuple (X, y), optional
            Held-out sentences, or the share of the sentences to hold out. The fit ends once their
            score no longer rises (F1 of chunks, or the share of right tokens), and keeps the best
            model; ``history_["validation_score"]`` has the scores.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For bad data or parameters; the message names the argument.
        """
        self._check_parameters()
        X, y, sample_weight, token_weight, lengths = self._valid(
            (X, y, sample_weight, token_weight, lengths)
        )
        held = None
        if validation is not None:
            given = (X, y, sample_weight, token_weight, lengths)
            (X, y, sample_weight, token_weight, lengths), held = hold_out(self, validation, given)
        self.validation_curve_ = None
        if self.C == "validation":
            X, y, token_weight = as_lists(X, y, token_weight, lengths)
            lengths = None
            self.validation_curve_ = try_values(self, X, y, sample_weight, token_weight)
        problem = read_problem(self, X, y, token_weight, lengths)
        weights = example_weights(sample_weight, len(problem))
        warm = self.warm_start and not problem.is_partial
        start = starting_point(self, problem) if warm else None
        own = (X, y, sample_weight)
        # Sentences that can be read only once are gone by now.
        again = all(each is None or hasattr(each, "__len__") for each in own)
        data = own if again else (None, None, None)
        settings = self._settings(weights, len(problem))
        settings["start"] = start
        if held is not None:
            train(self, problem, settings, data, watcher=Validation(self, problem, held))
        elif problem.is_partial and self.loss == "hamming":
            fit_completed(self, problem, settings, weights)
        else:
            train(self, problem, settings, data)
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
        """Fit one C after the other, each from where the one before ended, and yield each fit.

        Sets `C`. The sentences are read once.

        Yields
        ------
        self
            Fitted with each C in turn.
        """
        self._check_parameters()
        X, y, sample_weight, token_weight, _ = self._valid(
            (X, y, sample_weight, token_weight, None)
        )
        problem = read_problem(self, X, y, token_weight, None)
        weights = example_weights(sample_weight, len(problem))
        start = None
        for C in Cs:
            self.C = float(C)
            settings = self._settings(weights, len(problem))
            settings["start"], settings["keep_point"] = start, True
            train(self, problem, settings, is_fit=False)
            start, self._point = self._point, None
            yield self

    def _settings(self, weights: FloatArray | None, n_sentences: int) -> _core._SequenceSettings:
        chosen = with_defaults(self)
        if self.C == "validation":
            assert self.validation_curve_ is not None
            curve = self.validation_curve_
            chosen.C = curve["C"][np.argmax(curve["score"])]
        self.C_ = float(chosen.C)
        return sequence_settings(chosen, shares_record("C", chosen.C, weights, n_sentences))

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

        Solves at the small end to half of `tol`, finds how far the solution, scaled with C, stays
        within `tol` (its gap is convex in C), and goes on from there. Nothing is stored on the
        estimator; `C` and `warm_start` are not used.

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
            By increasing C; each begins where the one before it ends, and predicts. A piece that
            did not get to `tol` within `max_iter` passes says so in its ``relative_gap``, and there
            is a warning. A path that the callback stops ends early.

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
        warn_of_pieces(found, chosen.tol, self._remedy)
        return found

    def _store(self, problem: Problem, weights: FloatArray) -> None:
        self._weights, self._loss = problem.kept(weights), self.loss
        self._features = self.features
        self.classes_, self.n_features_in_ = problem.classes, problem.n_features
        self.notes_ = {}

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "_point": None, "_digests": None}

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
            msg = "loss: the conditional random field is loss=\"logistic\", got 'crf'"
            raise ValueError(msg)
        check_choice("loss", self.loss, "hamming", "logistic")
        checked = with_defaults(self)
        if isinstance(self.C, str):
            if self.C != "validation":
                msg = f'C: must be a positive number, None or "validation", got {self.C!r}'
                raise ValueError(msg)
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
        """Apply the rule for sentences whose labels the scheme forbids."""
        if self.invalid == "raise":
            return given
        return apply_rule(self.invalid, self.transitions, given)
