"""
Data that do not fit in memory
==============================

`Chunks` hands rows to a fit piece by piece: memory-mapped files are read where they lie, and what a
generator yields is moved to files. Every pass of the fit streams through them, and the model and
its certificate are those of all rows.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from dualgap import Chunks, PolynomialNetworkRegressor
from dualgap.plotting import ConvergenceDisplay


def piece(seed):
    """A thousand rows of a process that is measured piece by piece."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1000, 6))
    return X, X[:, 0] * X[:, 1] - X[:, 2] ** 2 + 0.5 * rng.normal(size=1000)


# %%
# Pieces as files, such as another program may have left them. ``mmap_mode="r"`` keeps them on the
# disk: the system's page cache decides how much of them is in memory.

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
print(f"R2 on a new piece {model.score(X, y):.3f}, gap {model.relative_gap_:.1e} of the objective")

# %%
# A generator does as well. ``from_pairs`` takes rows and targets together and spills the rows into
# a folder, in files that have no name and vanish with the object.

spilled, values = Chunks.from_pairs((piece(seed) for seed in range(5)), spill=folder.name)
same = PolynomialNetworkRegressor(8, radius=3.0, tol=0.05, random_state=0).fit(spilled, values)
print("the same model bit for bit:", bool((same.components_ == model.components_).all()))

# %%
# The picture: the gap says after each new basis vector how much any further ones could win.

ConvergenceDisplay.from_estimator(model, quantities=["gap"], against="epoch")
plt.show()

# %%
# `Chunks` is read by the polynomial networks and factorization machines. Linear SVMs on more rows
# than memory holds are trained over partitions: see the next tutorial.

del chunks, spilled
folder.cleanup()
