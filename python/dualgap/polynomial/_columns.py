"""Removal of empty columns before a fit; their weights are 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dualgap._validation import FloatArray

_SHARE = 0.5
"""Columns are dropped only if at most this fraction is kept, because dropping columns copies the
indices."""
_LARGEST = 2**31
"""If a model of all columns takes more bytes than this, no column is dropped: the result needs that
memory anyway, and the core raises an error if it is not available."""


@dataclass(frozen=True)
class Columns:
    """The columns that a fit keeps, of `n_features` in total.

    A column without entries affects the objective only through penalties, which are smallest if its
    weight is 0. The optimum over the other columns is therefore the optimum over all columns, and
    bounds remain valid.
    """

    kept: NDArray[np.intp] | None
    """Indices of the kept columns; None if all are kept."""
    n_features: int

    @classmethod
    def of(cls, X: Any, init: Mapping[str, Any] | None, n_vectors: int) -> Self:
        """Choose the columns with entries in `X` or in the model `init`.

        If most columns have entries, all are kept. `n_vectors` is the number of weights per column.
        """
        n_features = X.shape[1]
        if not scipy.sparse.issparse(X) or 8 * n_vectors * (n_features + 1) > _LARGEST:
            return cls(None, n_features)
        occurs = np.zeros(n_features, dtype=bool)
        occurs[X.indices] = True
        if init is not None:
            occurs |= (init["basis"][:, :n_features] != 0.0).any(axis=0)
            if init["linear"] is not None:
                occurs |= (init["linear"][:n_features] != 0.0).any(axis=1)
        kept = np.flatnonzero(occurs)
        # A matrix needs at least one column.
        kept = kept if len(kept) else np.zeros(1, dtype=np.intp)
        return cls(kept if len(kept) <= _SHARE * n_features else None, n_features)

    def narrow_fit(self, X: Any, init: Any, validation: Any) -> tuple[Any, Any, Any]:
        """Restrict the rows, the initial model and the validation rows to the kept columns."""
        if self.kept is None:
            return X, init, validation
        init = None if init is None else self._narrow(init)
        if validation is not None:
            validation = (self._take(validation[0]), validation[1])
        return self._take(X), init, validation

    def _take(self, X: Any) -> Any:
        """Restrict rows to the kept columns; sparse training rows share their values with `X`."""
        assert self.kept is not None
        if not scipy.sparse.issparse(X):
            return np.ascontiguousarray(X[:, self.kept])
        place = np.full(self.n_features, -1, dtype=X.indices.dtype)
        place[self.kept] = np.arange(len(self.kept), dtype=X.indices.dtype)
        indices = place[X.indices]
        if (indices < 0).any():
            # Only validation rows have entries in dropped columns, so these are validation rows.
            return X[:, self.kept]
        return type(X)((X.data, indices, X.indptr), shape=(X.shape[0], len(self.kept)), copy=False)

    def _narrow(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """Restrict the layers of a model to the kept columns."""
        places = self._with_constant(model["basis"].shape[1])
        linear = model["linear"]
        if linear is not None:
            linear = np.ascontiguousarray(linear[self._with_constant(len(linear))])
        return {**model, "basis": np.ascontiguousarray(model["basis"][:, places]), "linear": linear}

    def widen(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """Extend the layers of a model to all columns, with zeros."""
        if self.kept is None:
            return dict(model)
        more = self.n_features - len(self.kept)
        basis, linear = model["basis"], model["linear"]
        wide = np.zeros((len(basis), basis.shape[1] + more))
        wide[:, self._with_constant(wide.shape[1])] = basis
        if linear is not None:
            narrow: FloatArray = linear
            linear = np.zeros((len(narrow) + more, narrow.shape[1]))
            linear[self._with_constant(len(linear))] = narrow
        return {**model, "basis": wide, "linear": linear}

    def _with_constant(self, width: int) -> NDArray[np.intp]:
        """Return indices of the kept columns, and of a constant feature if `width` includes one."""
        assert self.kept is not None
        return np.concatenate([self.kept, np.arange(self.n_features, width)])
