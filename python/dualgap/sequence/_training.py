"""Checked training data of a tagger, the costs of errors, and the weights of a fitted model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualgap import _core
from dualgap._estimator import depth
from dualgap._estimator.scales import SPREAD, scale_cause
from dualgap._validation import FloatArray, check_class_weight
from dualgap._validation.arrays import as_numpy
from dualgap.sequence._weights import Names, Weights, drop_unused, weights_of
from dualgap.structured._arrays import flatten

# With at most `_FEW` sentences of a mean length of at least `_LONG` tokens, a pass has too few
# steps. Ten sentences of 2,000 tokens need 86 passes; the same tokens in sentences of 20 need 11.
_FEW = 100
_LONG = 500


@dataclass(frozen=True)
class Problem:
    """Labelled sentences in the core's format, with the names of its classes and columns."""

    core: _core.SequenceProblem
    classes: NDArray[Any]
    links: NDArray[np.uint8]
    marks: NDArray[np.bool_] | None
    vocabulary: _core.Vocabulary | None
    hash_bits: int | None
    n_features: int
    n_sentences: int
    # The features of some tokens, to explain slow convergence.
    sample: Any
    # Whether some labels are unknown.
    is_partial: bool = False
    # Hash of the content of each sentence; only for a warm start.
    digests: NDArray[np.uint64] | None = None
    # Names of the columns, if the sentences are tables.
    columns: NDArray[Any] | None = None

    def __len__(self) -> int:
        return self.n_sentences

    def scale_cause(self) -> str | None:
        """Describe a problem with the scales of the features, and name the remedy."""
        if self.vocabulary is None:
            return scale_cause(self.sample, names=self.columns)
        return _feature_cause(self.sample, self.vocabulary)

    def weights(self, flat: FloatArray) -> Weights:
        """Split the core's vector of weights into parts, and leave out zeros."""
        n_marked = 0 if self.marks is None else int(self.marks.sum())
        sizes = (len(self.classes), self.n_features - n_marked, n_marked)
        kept = weights_of(flat, self.core.pairs(), self.links, sizes)
        kept.on_transitions = self.marks
        return kept

    def kept(self, flat: FloatArray) -> Weights:
        """Return the nonzero weights; leave out named columns whose weights are all zero."""
        kept = self.weights(flat)
        if self.vocabulary is not None and self.hash_bits is None:
            return drop_unused(kept, self.vocabulary)
        if self.vocabulary is not None:
            kept.names = Names(b"", [], self.hash_bits)
        return kept


def _feature_cause(rows: Any, vocabulary: _core.Vocabulary) -> str | None:
    """Describe a named feature with large values, and name the remedy; None without such values.

    Unlike columns, named features have no scaler, and most of them are 0 or 1. A vocabulary of
    hashed features has no names.
    """
    sizes = np.abs(rows.data)
    if not sizes.size or sizes.max() <= SPREAD:
        return None
    top = int(sizes.argmax())
    column, names = int(rows.indices[top]), vocabulary.names()
    feature = f"feature {names[column]!r}" if names else f"the hashed feature {column}"
    return (
        f"{feature} reaches {sizes[top]:.2g}, but transitions count as features with value 1: "
        "scale its values"
    )


def error_costs(
    tagger: Any,
    token_weight: Any,
    labels: tuple[NDArray[Any], NDArray[np.uint32]],
    offsets: NDArray[np.int64],
    *,
    flat: bool,
) -> FloatArray | None:
    """Return the cost of an error at each token, or None if all costs are 1."""
    if token_weight is None and tagger.class_weight is None:
        return None
    classes, codes = labels
    costs = np.ones(len(codes))
    if tagger.class_weight is not None:
        known = classes.tolist()
        check_class_weight(tagger.class_weight)
        for label, weight in dict(tagger.class_weight).items():
            if label not in known:
                msg = f"class_weight: the label {label!r} does not occur in y"
                raise ValueError(msg)
            costs[codes == known.index(label)] = weight
    if token_weight is not None:
        own = token_weight if flat else flatten("token_weight", list(token_weight), offsets)
        own = np.asarray(as_numpy("token_weight", own))
        if own.shape != costs.shape or own.dtype.kind not in "biuf":
            msg = "token_weight: must be a number for each token"
            raise ValueError(msg)
        costs = costs * own
    if not (np.isfinite(costs).all() and costs.min() >= 0 and costs.max() > 0):
        msg = "token_weight, class_weight: must be finite, non-negative and not all zero"
        raise ValueError(msg)
    return np.ascontiguousarray(costs, dtype=np.float64)


def warn_of_long_sentences(tagger: Any, offsets: NDArray[np.int64]) -> None:
    """Warn if there are only a few, long sentences: a pass makes one step per sentence."""
    n_sentences, mean = len(offsets) - 1, int(offsets[-1]) // (len(offsets) - 1)
    if tagger.loss == "hamming" and n_sentences <= _FEW and mean >= _LONG:
        text = (
            f'X: {n_sentences} sentences of {mean} tokens on average: loss="hamming" makes one '
            "step per sentence and pass, so few long sentences need many passes; split the "
            'sentences, or use loss="logistic"'
        )
        warnings.warn(text, UserWarning, stacklevel=depth())


def marked_columns(
    features: Sequence[str] | Sequence[int] | None,
    vocabulary: _core.Vocabulary | None,
    n_features: int,
) -> NDArray[np.bool_] | None:
    """Return which columns are transition features; None if none were requested."""
    if features is None or (isinstance(features, Sized) and len(features) == 0):
        return None
    marks = np.zeros(n_features, dtype=bool)
    is_list = isinstance(features, Sized) and not isinstance(features, str)
    if not is_list or len({isinstance(feature, str) for feature in features}) > 1:
        msg = f"transition_features: must be a list of strings or of columns, got {features!r}"
        raise ValueError(msg)
    if isinstance(features[0], str):
        names = [] if vocabulary is None else vocabulary.names()
        if not names:
            msg = "transition_features: strings require named features, without hash_bits"
            raise ValueError(msg)
        prefixes = tuple(str(feature) for feature in features)
        marks[[at for at, name in enumerate(names) if name.startswith(prefixes)]] = True
        if not marks.any():
            msg = (
                f"transition_features: no feature begins with any of {list(prefixes)}; features "
                f"are {', '.join(map(repr, names[:3]))}, ..."
            )
            raise ValueError(msg)
    else:
        columns = np.asarray(features)
        if columns.dtype.kind not in "iu" or columns.min() < 0 or columns.max() >= n_features:
            msg = f"transition_features: must be columns from 0 to {n_features - 1}"
            raise ValueError(msg)
        marks[columns] = True
    return marks
