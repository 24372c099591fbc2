"""The problem of a tagger's fit: sentences and labels, checked and passed to the core."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualgap import _core
from dualgap._estimator import refuse_unused
from dualgap._estimator.scales import sample_rows
from dualgap._records import ChainRecord
from dualgap._validation.columns import feature_names
from dualgap.sequence._defaults import with_defaults
from dualgap.sequence._digests import sentence_digests
from dualgap.sequence._partial import known_pieces, whole_sentences
from dualgap.sequence._sentences import (
    Rowed,
    check_some,
    peek,
    read_matrices,
    read_named,
    read_partial_labels,
)
from dualgap.sequence._spill import Mapped, spilled_problem
from dualgap.sequence._training import (
    Problem,
    error_costs,
    marked_columns,
    warn_of_long_sentences,
)
from dualgap.sequence._transitions import (
    check_labels,
    seen_transitions,
    transition_codes,
)
from dualgap.sequence.features import featured, transition_prefixes


def read_problem(
    tagger: Any, X: Any, y: Any, token_weight: Any, lengths: Any, spill: Any = None
) -> Problem:
    """Check sentences and labels, and pass them to the core, which then owns them.

    If `spill` is a folder, the features of tokens are stored there, in temporary files.
    """
    flat = lengths is not None
    data: Rowed | Mapped
    if spill is None:
        data, vocabulary = _read(tagger, X, lengths)
        check_some(data.offsets)
        classes, codes, known = read_partial_labels(y, data.offsets, flat=flat)
    else:
        data, vocabulary, labels = spilled_problem(tagger, X, y, lengths, spill)
        classes, codes, known = labels
    if len(classes) == 0:
        msg = "y: at least one sentence must have a token"
        raise ValueError(msg)
    _core.SequenceProblem.check_labels(len(classes))
    whole = pieces = (codes, data.offsets)
    if known is not None:
        pieces, whole = known_pieces(*pieces, known), whole_sentences(*whole, known)
    seen = seen_transitions(*pieces, len(classes))
    links = transition_codes(tagger.transitions, classes, bool(tagger.boundaries), seen)
    check_labels(links, classes, *whole, tagger.transitions)
    marked = tagger.transition_features
    if marked is None:
        marked = transition_prefixes(tagger.features)
    marks = marked_columns(marked, vocabulary, data.n_features)
    if marks is None or isinstance(data, Mapped):
        rows, edges = data.rows, None
    else:
        rows, edges = data.split(marks)
    warn_of_long_sentences(tagger, data.offsets)
    costs = error_costs(tagger, token_weight, (classes, codes), data.offsets, flat=flat)
    settings: ChainRecord = {
        "n_states": len(classes),
        # Only the logistic loss supports unknown labels.
        "loss": tagger.loss if known is None else "logistic",
        "links": links,
        "seen_pairs": with_defaults(tagger).pairs == "seen",
        "token_weight": costs,
        "known": None if known is None else known.astype(np.uint8),
        "edges": edges,
    }
    core = _core.SequenceProblem(rows, data.offsets, codes, settings)
    named = vocabulary, tagger.hash_bits
    digests = None
    if tagger.warm_start and tagger.loss == "hamming" and isinstance(data, Rowed):
        digests = sentence_digests(data, vocabulary, classes[codes])
    sizes = data.n_features, len(data)
    columns = feature_names(X) if vocabulary is None else None
    own = core, classes, links, marks, *named, *sizes, sample_rows(data.rows)
    return Problem(*own, known is not None, digests, columns)


def _read(tagger: Any, X: Any, lengths: Any) -> tuple[Rowed, _core.Vocabulary | None]:
    X = featured(X, tagger.features, lengths)
    named, X = (False, X) if lengths is not None else peek(X)
    if not named:
        refuse_unused(tagger, ["min_count", "hash_bits"], "a matrix")
        return read_matrices(X, lengths), None
    vocabulary = _core.Vocabulary(tagger.hash_bits)
    count = int(tagger.min_count)
    data = read_named(lambda X: vocabulary.learn(X, count), X, lambda: len(vocabulary))
    if count > 1 and data.n_features == 0:
        msg = f"min_count: no feature occurs in at least {count} tokens; lower it"
        raise ValueError(msg)
    return data, vocabulary
