"""Predictions of a trained tagger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap._estimator import CertifiedEstimator
from dualgap._estimator.probabilities import without_probabilities
from dualgap._validation import FloatArray, check_positive, example_weights, resolve_threads
from dualgap._validation.columns import check_columns
from dualgap._validation.labels import class_codes
from dualgap.sequence._explain import Evidence, explain
from dualgap.sequence._known import known_codes
from dualgap.sequence._sentences import (
    Rowed,
    Sentences,
    peek,
    read_labels,
    read_matrices,
    read_named,
)
from dualgap.sequence._tables import LabelledTable
from dualgap.sequence._training import Problem
from dualgap.sequence._transitions import FORBIDDEN
from dualgap.sequence._weights import Weights
from dualgap.sequence.features import featured

_PROBABILITIES = (
    'tokens have probabilities with loss="logistic": use the method predict_marginals or '
    "log_probability"
)


@without_probabilities(_PROBABILITIES)
@dataclass(kw_only=True, eq=False, repr=False)
class TrainedChain(CertifiedEstimator):
    """The weights of a chain, with methods for prediction and inspection."""

    classes_: NDArray[Any] = field(init=False)
    n_features_in_: int = field(init=False)

    _loss: str = field(init=False)
    _features: Any = field(init=False, default=None)
    _weights: Weights = field(init=False)

    def predict(self, X: Sentences, *, known: Any = None, lengths: ArrayLike | None = None) -> Any:
        """Return the best labels of each sentence.

        Parameters
        ----------
        X : iterable of sentences, or matrix
            As in training.
        known : iterable of sequences of labels, optional
            For each token its label if known, else None. The result is the best labelling that
            agrees with the known labels. For one matrix with `lengths`, one entry per row.
        lengths : array-like of int, optional
            Number of rows of each sentence, if X is one matrix.

        Returns
        -------
        list of lists of labels, or ndarray of shape (n_rows,) for one matrix with `lengths`

        Raises
        ------
        ValueError
            For bad data, or if `transitions` forbids every labelling of a sentence that has its
            length and agrees with the known labels.
        """
        check_is_fitted(self)
        weights, threads, named = self._weights, resolve_threads(self.n_jobs), False
        X = featured(X, self._features, lengths)
        if lengths is None:
            named, X = peek(X)
        on_strings = named and weights.names is not None and weights.on_transitions is None
        if on_strings and known is None:
            assert weights.names is not None
            offsets, codes = weights.tagger.tag(weights.names.vocabulary, X, threads)
        else:
            data = self._rows(X, lengths)
            offsets = data.offsets
            codes = weights.tagger.decode(self._input(data, known, lengths), threads)
        return self._labelled(codes, offsets, flat=lengths is not None)

    def predict_single(self, sentence: Any) -> list[Any]:
        """Return the best labels of one sentence, as in sklearn-crfsuite."""
        labels: list[Any] = self.predict([sentence])[0]
        return labels

    def predict_top_k(
        self, X: Sentences, k: int, *, known: Any = None, lengths: ArrayLike | None = None
    ) -> list[list[tuple[list[Any], float]]]:
        """Return the `k` best labellings of each sentence; the search is exact.

        `known` is as in `predict`; probabilities are then conditional on the known labels.

        Returns
        -------
        list of lists of (labels, score), best first
            Scores are log-probabilities for ``loss="logistic"``. A sentence with fewer than `k`
            possible labellings gets all possible labellings.
        """
        check_is_fitted(self)
        check_positive("k", k, integer=True)
        data = self._read(X, lengths)
        normalised, threads = self._loss == "logistic", resolve_threads(self.n_jobs)
        given = self._input(data, known, lengths)
        found = self._weights.tagger.decode_best(given, int(k), normalised, threads)
        classes = self.classes_.tolist()
        return [[([classes[c] for c in codes], s) for codes, s in ranked] for ranked in found]

    def predict_marginals(
        self, X: Sentences, *, known: Any = None, lengths: ArrayLike | None = None
    ) -> list[FloatArray]:
        """Return the probability or the max-marginal of each label at each token.

        `known` is as in `predict`; probabilities are then conditional on the known labels.

        Returns
        -------
        list of ndarray of shape (n_tokens, n_classes)
            For ``loss="logistic"``, the probability of each label at each token. For "hamming", the
            max-marginal: the score of the best labelling with this label at this token, minus the
            score of the best labelling. It is 0 for the best labels and -inf for forbidden ones.
        """
        check_is_fitted(self)
        data = self._read(X, lengths)
        maximal, threads = self._loss != "logistic", resolve_threads(self.n_jobs)
        given = self._input(data, known, lengths)
        flat = self._weights.tagger.marginals(given, maximal, threads)
        rows = flat.reshape(-1, len(self.classes_))
        return [rows[start:end] for start, end in pairwise(data.offsets)]

    def score(
        self,
        X: Sentences,
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        lengths: ArrayLike | None = None,
    ) -> float:
        """Return the fraction of correctly labelled tokens; see `chunk_f1` for chunks.

        Labels that did not occur in training count as errors. `sample_weight` has one entry per
        sentence.
        """
        check_is_fitted(self)
        data = self._read(X, lengths)
        threads = resolve_threads(self.n_jobs)
        found = self.classes_[self._weights.tagger.decode(self._input(data), threads)]
        classes, codes = read_labels(y, data.offsets, flat=lengths is not None)
        right = (classes[codes] if len(codes) else found) == found
        weights = example_weights(sample_weight, len(data))
        sizes = np.diff(data.offsets)
        tokens = np.ones(len(found)) if weights is None else np.repeat(weights, sizes)
        total = float(tokens.sum())
        return float(tokens @ right) / total if total > 0 else 1.0

    def log_probability(
        self, X: Sentences, y: Any, *, lengths: ArrayLike | None = None
    ) -> FloatArray:
        """Return the logarithm of the probability of the given labels of each sentence.

        Parameters
        ----------
        X, y, lengths
            As in `score`.

        Returns
        -------
        ndarray of shape (n_sentences,)
            At most 0; -inf for labels that did not occur in training or that `transitions` forbids.

        Raises
        ------
        ValueError
            For ``loss="hamming"``, which does not model probabilities, and for bad data.
        """
        check_is_fitted(self)
        if self._loss != "logistic":
            msg = f"loss: {_PROBABILITIES}"
            raise ValueError(msg)
        data = self._read(X, lengths)
        classes, codes = read_labels(y, data.offsets, flat=lengths is not None)
        places = class_codes(self.classes_, classes)[codes]
        unknown = np.concatenate([[0], np.cumsum(places < 0)])
        numbers = np.maximum(places, 0).astype(np.uint32)
        threads = resolve_threads(self.n_jobs)
        found = self._weights.tagger.scores(self._input(data), numbers, True, threads)
        has_unknown = unknown[data.offsets[1:]] > unknown[data.offsets[:-1]]
        return np.where(has_unknown, -np.inf, found)

    def explain(self, sentence: Any, labels: Iterable[Any] | None = None) -> list[Evidence]:
        """Return the contributions to the score of each token's label in a sentence.

        Parameters
        ----------
        sentence : one sentence
            In the same form as in `predict`.
        labels : iterable of labels, optional
            The labels to explain; by default the predicted labels.

        Returns
        -------
        list of Evidence
            ``(label, features, transition)``: the contributions of features to the label's score,
            largest first, and the contribution of the transition from the previous label or of the
            boundary.
        """
        check_is_fitted(self)
        data = self._read([sentence], None)
        if labels is None:
            codes = self._weights.tagger.decode(self._input(data), 1).tolist()
        else:
            place = {label: index for index, label in enumerate(self.classes_.tolist())}
            wanted = list(labels)
            unknown = [label for label in wanted if label not in place]
            if unknown or len(wanted) != data.offsets[-1]:
                msg = f"labels: must be a known label for each token, got {wanted!r}"
                raise ValueError(msg)
            codes = [place[label] for label in wanted]
        return explain(self._weights, data, codes, self.classes_)

    @property
    def feature_names_(self) -> list[str] | None:
        """Names of the columns of `emission_`; None for matrices and hashed names."""
        check_is_fitted(self)
        names = self._weights.names
        return None if names is None or names.bits is not None else names.vocabulary.names()

    @property
    def state_features_(self) -> dict[tuple[Any, Any], float]:
        """Nonzero weights by feature and label, named as in sklearn-crfsuite.

        For matrices and hashed names, features are given by their column indices.
        """
        table = self.emission_.tocoo()
        marks = self._weights.on_transitions
        names: Any = self.feature_names_ or range(self.n_features_in_)
        if marks is not None:
            names = [name for name, marked in zip(names, marks, strict=True) if not marked]
        labels = self.classes_.tolist()
        entries = zip(table.row, table.col, table.data.tolist(), strict=True)
        return {(names[row], labels[column]): weight for row, column, weight in entries}

    @property
    def transition_features_(self) -> dict[tuple[Any, Any], float]:
        """Nonzero weights by label and next label, named as in sklearn-crfsuite."""
        table = self.transition_
        labels = list(enumerate(table.rows))
        pairs = {(a, b): float(table.values[i, j]) for i, a in labels for j, b in labels}
        return {pair: weight for pair, weight in pairs.items() if weight != 0}

    @property
    def emission_(self) -> sp.csr_array:
        """Weight of each pair of column and label, as a sparse array (n_columns, n_classes).

        Named columns (see `feature_names_`) whose weights are all 0 are left out. Weights of
        transition features are not included.
        """
        check_is_fitted(self)
        return self._weights.emission

    @property
    def transition_(self) -> LabelledTable:
        """Transition weights, with a row per label and a column per next label."""
        return self._links(0, self.classes_.tolist())

    @property
    def boundary_(self) -> LabelledTable:
        """Weights of the first ("start") and the last ("end") label of a sentence."""
        return self._links(len(self.classes_), ["start", "end"])

    def _links(self, first: int, rows: list[Any]) -> LabelledTable:
        check_is_fitted(self)
        n = len(self.classes_)
        weights = self._weights
        values = np.where(weights.links == FORBIDDEN, -np.inf, weights.link_weights)
        table = values.reshape(n + 2, n)[first : first + len(rows)]
        return LabelledTable(table, rows, self.classes_.tolist())

    def _scale_cause(self, X: Any) -> str | None:
        """Describe a problem with the scales of the features, given the `Problem` of the fit."""
        return Problem.scale_cause(X)

    def _read(self, X: Any, lengths: Any) -> Rowed:
        """Read sentences in the form that the tagger was trained on."""
        return self._rows(featured(X, self._features, lengths), lengths)

    def _rows(self, X: Any, lengths: Any) -> Rowed:
        """Read sentences that consist of features."""
        names = self._weights.names
        if names is not None:
            named, X = (False, X) if lengths is not None else peek(X)
            if not named:
                msg = "X: the tagger was trained on named features, got a matrix"
                raise ValueError(msg)
            vocabulary = names.vocabulary
            return read_named(vocabulary.read, X, lambda: len(vocabulary))
        check_columns(self, X)
        data = read_matrices(X, lengths)
        if len(data) and data.n_features != self.n_features_in_:
            msg = f"X: must have {self.n_features_in_} features, got {data.n_features}"
            raise ValueError(msg)
        return data

    def _input(self, data: Rowed, known: Any = None, lengths: Any = None) -> Any:
        """Return the sentences and their known labels in the core's format."""
        flat = lengths is not None
        codes = None if known is None else known_codes(known, data.offsets, self.classes_, flat)
        if len(data) == 0:
            data = Rowed(np.zeros((0, self.n_features_in_)), data.offsets, self.n_features_in_)
        if self._weights.on_transitions is None:
            return data.rows, data.offsets, None, codes
        rows, edges = data.split(self._weights.on_transitions)
        return rows, data.offsets, edges, codes

    def _labelled(self, codes: Any, offsets: Any, *, flat: bool) -> Any:
        if flat:
            return self.classes_[codes]
        labels = self.classes_.astype(object)[codes].tolist()
        ends = offsets.tolist()
        return [labels[a:b] for a, b in pairwise(ends)]
