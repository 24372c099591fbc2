"""
Segmentation by minimum cuts
============================

Neighbouring pixels tend to have the same label. A structured SVM learns how strong this tendency
is, together with the appearance of pixels. Labels are binary images, and the highest-scoring one is
a minimum cut. This requires that neighbours attract each other, so their weight is constrained to
be non-negative.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from dualgap.structured import StructuredSVM

# %%
# The data are noisy images of discs.

SIDE = 10
rng = np.random.default_rng(0)
ROW, COLUMN = np.divmod(np.arange(SIDE**2), SIDE)


def draw():
    """Return a disc, as zeros and ones, and its noisy image."""
    centre, radius = rng.uniform(2, SIDE - 3, 2), rng.uniform(2, 4)
    disc = (np.hypot(ROW - centre[0], COLUMN - centre[1]) <= radius).astype(float)
    return disc, disc + 0.8 * rng.normal(size=SIDE**2)


y, X = map(list, zip(*(draw() for _ in range(60)), strict=True))

# %%
# The score of a label y is ``w0 sum_p x_p y_p + w1 sum_p y_p - w2 (number of cut edges)``. With
# ``w2 >= 0`` its maximiser is a minimum cut, which solves a linear program with integral vertices,
# over ``0 <= y <= 1`` and ``z_pq >= |y_p - y_q|``.

ALL = np.arange(SIDE**2)
EDGES = np.vstack(
    [
        np.column_stack([ALL[COLUMN < SIDE - 1], ALL[COLUMN < SIDE - 1] + 1]),
        np.column_stack([ALL[ROW < SIDE - 1], ALL[ROW < SIDE - 1] + SIDE]),
    ]
)
N = len(EDGES)
ENDS = sp.csr_array(
    (np.tile([1.0, -1.0], N), EDGES.ravel(), 2 * np.arange(N + 1)), shape=(N, SIDE**2)
)
CUTS = sp.vstack(
    [sp.hstack([ENDS, -sp.eye_array(N)]), sp.hstack([-ENDS, -sp.eye_array(N)])], format="csc"
)


class Grid:
    """Binary labels of the pixels of a grid."""

    def joint_features(self, x, y):
        """Return the features of the three weights."""
        return np.array([x @ y, y.sum(), -np.abs(ENDS @ y).sum()])

    def loss(self, y_true, y):
        """Return the share of wrong pixels."""
        return float(np.mean(y_true != y))

    def loss_augmented_decode(self, x, y_true, w):
        """Return the label with the largest sum of loss and score."""
        return self._cut(w[0] * x + w[1] + (1 - 2 * y_true) / len(x), w[2])

    def decode(self, x, w):
        """Return the label with the largest score."""
        return self._cut(w[0] * x + w[1], w[2])

    def _cut(self, gains, weight):
        costs = np.r_[-gains, np.full(N, weight)]
        found = linprog(costs, CUTS, np.zeros(2 * N), bounds=(0, 1), method="highs-ds")
        return np.round(found.x[: SIDE**2])


# %%
# Fifteen images are enough for three weights. ``signs`` keeps the last weight non-negative, and the
# certificate compares the model with all weights that satisfy this constraint.

svm = StructuredSVM(Grid(), C=0.003, signs=[0, 0, 1], step="pairwise", tol=0.05, random_state=0)
svm.fit(X[:15], y[:15])
print(f"weights {svm.coef_.round(3)}, gap {svm.relative_gap_:.1e} of the objective")
print(f"correct pixels: {svm.score(X[15:], y[15:]):.3f}")

# %%
# Without edges, the model reduces to a threshold for each pixel.

levels = np.linspace(0, 1, 21)
level = max(levels, key=lambda level: np.mean((np.array(X[:15]) > level) == np.array(y[:15])))
right = np.mean((np.array(X[15:]) > level) == np.array(y[15:]))
print(f"correct pixels with the threshold {level:.2f}: {right:.3f}")

# %%
# The plot shows the noisy image, the result of the threshold, the minimum cut and the true disc.

found = svm.predict(X[15:19])
figure, axes = plt.subplots(4, 4, figsize=(6, 6))
for row, x, truth, cut in zip(axes, X[15:19], y[15:19], found, strict=True):
    for axis, image in zip(row, (x, x > level, cut, truth), strict=True):
        axis.imshow(np.reshape(image, (SIDE, SIDE)), cmap="gray")
        axis.set_axis_off()
for axis, title in zip(axes[0], ("noisy image", "threshold", "minimum cut", "truth"), strict=True):
    axis.set_title(title)
