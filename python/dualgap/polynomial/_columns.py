"""The columns that a fit needs: those without entries have weights 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dualgap._validation import FloatArray

_SHARE = 0.5
"""A fit drops columns if it keeps at most this share: with all of them it copies no indices."""
_LARGEST = 2**31
"""Bytes of the layers of a model for all columns. A fit of larger ones keeps them: the core refuses
it if there is not enough memory."""


@dataclass(frozen=True)
class Columns:
    """The columns that a fit keeps, of `n_features`.

    The objective does not depend on a column without entries but for penalties, which are smallest
    at weights of 0: the optimum over the other columns is that over all of them, and so are bounds.
    """

    kept: NDArray[np.intp] | None
    """None for all of them."""
    n_features: int

    @classmethod
    def of(cls, X: Any, init: Mapping[str, Any] | None, n_vectors: int) -> Self:
        """Columns of `X` or of the model `init` that have entries, if many have none.

        A model has `n_vectors` numbers for each column.
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
        # At least one: rows have columns.
        kept = kept if len(kept) else np.zeros(1, dtype=np.intp)
        return cls(kept if len(kept) <= _SHARE * n_features else None, n_features)

    def narrow_fit(self, X: Any, init: Any, validation: Any) -> tuple[Any, Any, Any]:
        """Rows, the model that a fit starts from and validation rows with these columns alone."""
        if self.kept is None:
            return X, init, validation
        init = None if init is None else self._narrow(init)
        if validation is not None:
            validation = (self._take(validation[0]), validation[1])
        return self._take(X), init, validation

    def _take(self, X: Any) -> Any:
        """Rows with these columns alone; sparse training rows share their values with `X`."""
        assert self.kept is not None
        if not scipy.sparse.issparse(X):
            return np.ascontiguousarray(X[:, self.kept])
        place = np.full(self.n_features, -1, dtype=X.indices.dtype)
        place[self.kept] = np.arange(len(self.kept), dtype=X.indices.dtype)
        indices = place[X.indices]
        if (indices < 0).any():
            # Of validation rows.
            return X[:, self.kept]
        return type(X)((X.data, indices, X.indptr), shape=(X.shape[0], len(self.kept)), copy=False)

    def _narrow(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """Layers of a model for these columns."""
        places = self._with_constant(model["basis"].shape[1])
        linear = model["linear"]
        if linear is not None:
            linear = np.ascontiguousarray(linear[self._with_constant(len(linear))])
        return {**model, "basis": np.ascontiguousarray(model["basis"][:, places]), "linear": linear}

    def widen(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """The same layers for all columns."""
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
        """The places of the kept columns, and of the constant feature if the width includes it."""
        assert self.kept is not None
        return np.concatenate([self.kept, np.arange(self.n_features, width)])
