"""Random valid and invalid arguments for the functions of the core, from one generator."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualgap import _core

NUMBERS = [0.0, 1.0, -1.0, 1e-3, np.nan, np.inf, -np.inf, 1e308, 1e-320, 1e155, -1e-160]


class Arguments:
    """A generator of arguments, most of them valid and some of them invalid."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.choice = self.random.choice

    def rarely(self, share: float = 0.05) -> bool:
        return self.random.random() < share

    def size(self) -> int:
        return self.choice([0, 1, 1, 2, 2, 3, 3, 4, 5, 8])

    def near(self, size: int) -> int:
        """Return the given size in most cases."""
        return self.size() if self.rarely() else size

    def number(self, hostile: float = 0.1) -> float:
        return self.choice(NUMBERS) if self.rarely(hostile) else self.random.uniform(-2.0, 2.0)

    def positive(self) -> float:
        return self.choice(NUMBERS if self.rarely(0.15) else [1e-3, 0.1, 1.0, 10.0])

    def seed(self) -> int:
        return self.random.randrange(2**63)

    def misaligned(self, array: Any) -> Any:
        """Return the array, sometimes at an unaligned address."""
        if not (array.size and self.rarely()):
            return array
        raw = np.frombuffer(b"\0" + array.tobytes(), dtype=np.uint8)[1:]
        return raw.view(array.dtype).reshape(array.shape)

    def array(self, *shape: int, dtype: Any = np.float64, sign: bool = True) -> Any:
        hostile = self.choice([0.0, 0.0, 0.0, 0.1])
        size = int(np.prod(shape))
        values = np.array([self.number(hostile) for _ in range(size)], dtype=np.float64)
        with np.errstate(all="ignore"):
            values = (values if sign else np.abs(values)).astype(dtype).reshape(shape)
        return self.misaligned(values)

    def integers(self, size: int, below: int, dtype: Any = np.uint32) -> Any:
        size = self.near(size)
        values = np.array([self.random.randrange(max(below, 1)) for _ in range(size)], dtype)
        if size and self.rarely():
            largest = np.iinfo(dtype).max
            values[self.random.randrange(size)] = self.choice([min(below, largest), largest])
        return self.misaligned(values)

    def rows(self, n: int, d: int, *, sparse: bool | None = None, dtype: Any = None) -> Any:
        dtype = dtype or self.choice([np.float64, np.float32])
        X = self.array(self.near(n), d, dtype=dtype)
        if not (self.rarely(0.4) if sparse is None else sparse):
            return np.asfortranarray(X) if self.rarely() else X
        csr = sp.csr_matrix(np.where(X < 0, 0, X))
        offsets, columns = csr.indptr.astype(np.int64), csr.indices.astype(np.int32)
        if len(columns) and self.rarely(0.1):
            columns[self.random.randrange(len(columns))] = self.choice([-1, d, 2**31 - 1, 0])
        if self.rarely(0.1):
            offsets[self.random.randrange(len(offsets))] = self.choice([-1, 10**9, 0])
        width = self.choice([0, 1, 5000]) if self.rarely() else d
        return (*map(self.misaligned, (offsets, columns, csr.data)), width)

    def weights(self, n: int) -> Any:
        return None if self.rarely(0.5) else self.array(self.near(n), sign=False)

    def callback(self) -> Any:
        return None if self.rarely(0.7) else lambda *_: self.rarely(0.2)

    def method(self, solvers: list[str]) -> dict[str, Any]:
        return {
            "solver": self.choice(solvers),
            "step": self.choice([None, None, *_core.STEPS]),
            "sampling": self.choice(_core.SAMPLINGS),
            "cache": self.rarely(0.2),
            "averaging": self.rarely(0.2),
            "subsample": self.choice([1.0, 1.0, 0.5, 0.0, -1.0, np.nan, 1e-9]),
            "seed": self.seed(),
        }

    def run(self) -> dict[str, Any]:
        return {
            "tol": self.choice([0.0, 1e-3, 1e-9, np.nan, -1.0, 1e300]),
            "max_iter": self.choice([0, 1, 2, 5, 20]),
            "n_threads": self.choice([0, 1, 2, 3]),
            "callback": self.callback(),
        }

    def margin(self, m: int) -> dict[str, Any]:
        loss = self.choice(list(_core.LOSSES))
        takes = _core.LOSSES[loss]
        weights = None
        if "weights" in takes:
            found = sorted(np.abs(self.array(max(m, 1))), reverse=True)
            found[-1] = 0.0
            with np.errstate(all="ignore"):
                total = sum(found) or 1.0
                weights = [float(value / total) for value in found]
        costs = None
        if self.rarely(0.3):
            costs = self.array(self.choice([m, m, self.size()]), m, sign=False)
            if costs.shape[0] == m:
                costs = np.where(np.eye(m, dtype=bool), 0.0, costs)
        return {
            "n_classes": self.near(m),
            "loss": loss,
            "k": self.choice([1, 1, 2, 3, 0]) if "k" in takes else None,
            "weights": weights,
            "costs": costs,
            "costs_per_row": self.rarely(0.5),
            "smoothing": self.choice([0.0, 0.0, 0.1, 1e-12, np.nan, 1e300]),
            "bias": self.choice([0.0, 1.0, np.nan, 1e300, -1.0]),
        }

    def network(self, d: int, m: int) -> dict[str, Any]:
        k = self.size()
        linear = None if self.rarely(0.5) else self.array(self.choice([d + 1, d]), m)
        return {
            "basis": self.array(k, d),
            "output": self.array(self.near(k), m),
            "linear": linear,
        }

    def targets(self, n: int, m: int) -> Any:
        if self.rarely(0.4):
            return self.integers(n, m)
        values = self.array(self.near(n), self.near(m))
        return np.sign(values) if self.rarely(0.4) else values

    def model(self) -> Any:
        kind, n, d = self.choice(["chain", "multiclass", "multilabel", "matching"]), *self.two()
        return getattr(self, kind)(n, d)

    def two(self) -> tuple[int, int]:
        return self.size(), self.size()

    def chain(self, n: int, d: int) -> Any:
        cuts = sorted(self.random.randrange(n + 1) for _ in range(self.random.randrange(3)))
        offsets = np.array([0, *cuts, n], dtype=np.int64)
        if self.rarely(0.1):
            offsets[self.random.randrange(len(offsets))] = self.choice([-1, n + 1, 10**12])
        states = self.choice([0, 1, 2, 3, 5])
        return _core.StructuredModel.chain(
            self.rows(n, d),
            offsets[:0] if self.rarely(0.03) else offsets,
            None if self.rarely(0.2) else self.integers(n, states),
            n_states=states,
            boundaries=self.rarely(0.5),
            loss=self.choice(["hamming", "mean-hamming"]),
        )

    def multiclass(self, n: int, d: int) -> Any:
        m = self.choice([0, 2**33]) if self.rarely() else self.choice([1, 2, 3])
        costs = None
        if self.rarely(0.5):
            few = min(m, 3)
            costs = np.where(np.eye(few, dtype=bool), 0.0, self.array(few, few, sign=False)).ravel()
        labels = None if self.rarely(0.2) else self.integers(n, min(m, 9))
        return _core.StructuredModel.multiclass(self.rows(n, d), labels, n_classes=m, costs=costs)

    def multilabel(self, n: int, d: int) -> Any:
        q = self.choice([0, 5, 17, 10**6, 2**40]) if self.rarely(0.1) else self.choice([1, 2, 3, 4])
        labels = None if self.rarely(0.2) else self.integers(n * min(q, 20), 2, np.uint8)
        return _core.StructuredModel.multilabel(
            self.rows(n, d),
            labels,
            n_labels=q,
            edges=self.edges(),
            loss=self.choice(["hamming", "mean-hamming"]),
        )

    def edges(self) -> Any:
        some = [[[0, 1]], [[0, 1], [1, 2], [0, 2]], [[0, 2**32 - 1]], [[0, 0]]]
        return self.choice(["full", "tree", "tree", [], "x", *some])

    def matching(self, n: int, d: int) -> Any:
        sizes = [[self.choice([0, 1, 2, 3]), self.choice([0, 1, 2, 3])] for _ in range(n % 4)]
        n_pairs = sum(a * b for a, b in sizes)
        if self.rarely():
            sizes.append([2**31, 2**31])
        right = [[self.random.randrange(4), self.random.randrange(4)] for _ in range(d % 4)]
        cuts = sorted(self.random.randrange(len(right) + 1) for _ in sizes[1:])
        offsets = np.array([0, *cuts, len(right)], dtype=np.int64)
        return _core.StructuredModel.matching(
            self.rows(n_pairs, d),
            sizes,
            None if self.rarely(0.3) else (right, offsets),
            costs=(self.positive(), self.positive()),
            max_links=self.choice([[1, 1], [1, 1], [2, 1], [1, 3], [0, 1], [2**40, 2]]),
        )

    def structured(self, n_blocks: int, n_weights: int) -> dict[str, Any]:
        found = {
            "regularization": self.positive(),
            "sample_weight": self.weights(n_blocks),
            **self.method(list(_core.STRUCTURED_SOLVERS)),
            "projection": self.choice([None, None, None, "euclidean", "entropic"]),
            "radius": self.choice([None, None, self.positive()]),
            **self.run(),
            "keep_dual": self.rarely(0.4),
            "start": None,
            "signs": None,
            "exact": self.rarely(0.8),
        }
        if self.rarely(0.2):
            signs = [self.choice([-1, 0, 1]) for _ in range(self.near(n_weights))]
            found["signs"] = np.array([*signs[1:], 7] if self.rarely() else signs, np.int8)
        if self.rarely(0.2):
            found.update(solver="block-frank-wolfe", step=self.choice([None, "pairwise"]))
            found["start"] = self.start(n_blocks, n_weights)
        return found

    def start(self, n_blocks: int, n_weights: int) -> dict[str, Any]:
        atoms = [self.choice([1, 1, 1, 2, 0, -1]) for _ in range(self.near(n_blocks))]
        n_atoms = sum(max(count, 0) for count in atoms)
        lengths = [
            self.choice([0, 1, 2, -1, 10**12] if self.rarely() else [0, 1, 2])
            for _ in range(n_atoms)
        ]
        n_entries = sum(length for length in lengths if 0 <= length < 9)
        shares = np.ones(n_atoms) if self.rarely(0.7) else self.array(n_atoms, sign=False)
        return {
            "weights": self.array(self.near(n_weights)),
            "atoms": np.array(atoms, dtype=np.int64),
            "shares": shares,
            "lengths": np.array(lengths, dtype=np.int64),
            "parts": self.integers(n_entries, 4),
            "values": self.array(n_entries),
        }


class Oracle:
    """A user's oracle that may return invalid results."""

    def __init__(self, arguments: Arguments, n_weights: int) -> None:
        self.arguments, self.n_weights = arguments, n_weights

    def vertices(self, indices: list[int], weights: Any) -> Any:
        a = self.arguments
        if a.rarely():
            return a.choice([None, [], [(np.zeros(self.n_weights), 0.0)] * 70])
        return [(a.array(a.near(self.n_weights)), abs(a.number(0.02))) for _ in indices]
