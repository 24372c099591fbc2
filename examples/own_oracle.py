"""
An oracle of your own
=====================

A structured SVM can learn any kind of label that can be decoded. It needs a model that finds, for
given weights, the label that violates its margin most. Here labels are rankings of four candidates.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np

from dualgap.structured import StructuredSVM

# %%
# The model has four methods. A label is a ranking, a permutation of the candidates. Its features
# are the sum, over all pairs, of the features of the higher-ranked candidate minus the features of
# the lower-ranked candidate. The loss is the share of pairs in the wrong order. Decoding tries all
# 24 rankings, so it is exact, as a certificate requires.

RANKINGS = list(itertools.permutations(range(4)))
PLACES = np.argsort(RANKINGS, axis=1)
PAIRS = np.array(list(itertools.combinations(range(4), 2)))
AHEAD = PLACES[:, PAIRS[:, 0]] < PLACES[:, PAIRS[:, 1]]


class Ranking:
    """A model whose labels are rankings of four candidates; each row describes one candidate."""

    def joint_features(self, x, y):
        """Return the features of an example with a ranking."""
        differences = x[PAIRS[:, 0]] - x[PAIRS[:, 1]]
        return np.where(AHEAD[RANKINGS.index(y)], 1.0, -1.0) @ differences

    def loss(self, y_true, y):
        """Return the share of pairs in the wrong order."""
        return float(np.mean(AHEAD[RANKINGS.index(y_true)] != AHEAD[RANKINGS.index(y)]))

    def loss_augmented_decode(self, x, y_true, w):
        """Return the ranking with the largest sum of loss and score."""
        losses = (AHEAD[RANKINGS.index(y_true)] != AHEAD).mean(axis=1)
        return RANKINGS[int(np.argmax(losses + self._scores(x, w)))]

    def decode(self, x, w):
        """Return the ranking with the largest score."""
        return RANKINGS[int(np.argmax(self._scores(x, w)))]

    def _scores(self, x, w):
        differences = (x[PAIRS[:, 0]] - x[PAIRS[:, 1]]) @ w
        return np.where(AHEAD, 1.0, -1.0) @ differences


# %%
# The candidates have six features, two of which matter, and the observed order is noisy.

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 4, 6))
worth = X @ [1.0, -0.5, 0, 0, 0, 0] + 0.3 * rng.normal(size=(200, 4))
y = [tuple(order.tolist()) for order in np.argsort(-worth, axis=1)]

svm = StructuredSVM(Ranking(), C=0.05, tol=0.02, step="pairwise", random_state=0)
svm.fit(list(X[:120]), y[:120])
print(f"right pairs: {svm.score(list(X[120:]), y[120:]):.3f}; weights {svm.coef_.round(2)}")
print(f"gap {svm.relative_gap_:.1e} of the objective; certificate: {svm.certificate_}")

# %%
# The picture shows how many of the six pairs of each held-out example are in the right order.

model = Ranking()
right = [
    6 - round(6 * model.loss(order, found))
    for order, found in zip(y[120:], svm.predict(list(X[120:])), strict=True)
]
figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
axis.bar(range(7), np.bincount(right, minlength=7))
axis.set(xlabel="pairs in the right order, of six", ylabel="examples")
plt.show()

# %%
# For a decoder that is not exact, pass ``StructuredSVM(..., exact_decoder=False)``; the fit then
# has no certificate. Otherwise the fit checks each result of the decoder against earlier results,
# and an error names the example whose result cannot be optimal.
