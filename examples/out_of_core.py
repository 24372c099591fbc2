"""
Data larger than memory
=======================

`Chunks` passes rows to a fit in chunks. Memory-mapped files are read in place, and the output of a
generator is written to temporary files. Every pass of the fit streams through all chunks, so the
model and its certificate cover all rows.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from dualgap import Chunks, PolynomialNetworkRegressor
from dualgap.plotting import ConvergenceDisplay


def piece(seed):
    """Draw a chunk of a thousand rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1000, 6))
    return X, X[:, 0] * X[:, 1] - X[:, 2] ** 2 + 0.5 * rng.normal(size=1000)


# %%
# The chunks are files, for example from another program. With ``mmap_mode="r"`` they stay on disk,
# and the operating system's page cache decides how much of them is in memory.

folder = tempfile.TemporaryDirectory()
targets = []
for number in range(5):
    X, y = piece(number)
    np.save(Path(folder.name) / f"{number}.npy", X)
    targets.append(y)
files = sorted(Path(folder.name).glob("*.npy"))
chunks = Chunks(np.load(file, mmap_mode="r") for file in files)
print(chunks.shape)

model = PolynomialNetworkRegressor(8, radius=3.0, tol=0.05, random_state=0)
model.fit(chunks, np.concatenate(targets))
X, y = piece(100)
print(f"R2 on a new chunk {model.score(X, y):.3f}, gap {model.relative_gap_:.1e} of the objective")

# %%
# A generator works, too. ``from_pairs`` takes pairs of rows and targets, and writes the rows to
# anonymous temporary files in a folder, which are deleted with the object.

spilled, values = Chunks.from_pairs((piece(seed) for seed in range(5)), spill=folder.name)
same = PolynomialNetworkRegressor(8, radius=3.0, tol=0.05, random_state=0).fit(spilled, values)
print("the same model bit for bit:", bool((same.components_ == model.components_).all()))

# %%
# The plot shows the gap after each new basis vector. The gap bounds the gain of all vectors that
# could still be added.

ConvergenceDisplay.from_estimator(model, quantities=["gap"], against="epoch")
plt.show()

# %%
# Polynomial networks and factorization machines accept `Chunks`. To train linear SVMs on data
# larger than memory, use partitions: see the next tutorial.

del chunks, spilled
folder.cleanup()
