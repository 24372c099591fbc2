"""Contributions to the score of a label."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dualgap.sequence._sentences import Rowed
from dualgap.sequence._transitions import FORBIDDEN
from dualgap.sequence._weights import Weights


class Evidence(NamedTuple):
    """Contributions to the score of a token's label.

    Attributes
    ----------
    label : object
        The label.
    features : list of (name, float)
        Contributions of features to the label's score, largest first. For matrices, the names are
        column indices.
    transition : float
        The weight of the transition from the previous label, including transition features. For the
        first and the last token, it also includes the boundary weight.
    """

    label: Any
    features: list[tuple[Any, float]]
    transition: float


def explain(
    weights: Weights, data: Rowed, codes: list[int], classes: NDArray[Any]
) -> list[Evidence]:
    """Return the evidence for the labels of one sentence."""
    matrix = _matrix(data)
    marks = weights.on_transitions
    plain = matrix if marks is None else matrix[:, ~marks]
    columns = np.arange(matrix.shape[1]) if marks is None else np.flatnonzero(~marks)
    names = weights.names
    known = None if names is None or names.bits is not None else names.vocabulary.names()
    emission, n, last = weights.emission, len(classes), len(codes) - 1
    links = np.where(weights.links == FORBIDDEN, -np.inf, weights.link_weights).reshape(n + 2, n)
    found = []
    for t, code in enumerate(codes):
        own = plain[[t], :]
        shares = own.data * emission[:, [code]].toarray()[own.indices, 0]
        order = np.argsort(-shares, kind="stable")
        pairs = [(int(columns[own.indices[i]]), float(shares[i])) for i in order if shares[i] != 0]
        named = [(column if known is None else known[column], share) for column, share in pairs]
        transition = float(links[n, code] if t == 0 else links[codes[t - 1], code])
        transition += float(links[n + 1, code]) if t == last else 0.0
        if marks is not None and t > 0:
            table = weights.edge_weights.reshape(-1, n, n)[:, codes[t - 1], code]
            transition += float(np.sum(matrix[[t], :][:, marks] @ table))
        found.append(Evidence(classes[code].item(), named, transition))
    return found


def _matrix(data: Rowed) -> sp.csr_array:
    if isinstance(data.rows, tuple):
        indptr, indices, values, width = data.rows
        return sp.csr_array((values, indices, indptr), shape=(len(indptr) - 1, width))
    return sp.csr_array(data.rows)
