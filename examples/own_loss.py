"""
A loss of your own
==================

Many losses are known to `MulticlassSVC` by name. One that is not is an object with two methods, and
its fit has a certificate like any other.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from dualgap import MulticlassSVC
from dualgap.losses import WeightedTopK
from dualgap.plotting import ConvergenceDisplay

# %%
# A loss is the largest of several sums of margins, ``max over b in B of b @ margins``, where
# ``margins[j]`` says by how much class j comes too near to the right one. ``support`` is this
# maximum and ``vertex`` a b that attains it. Here the strongest rival counts in full and the second
# half as much.


class NearestRivals:
    """The two largest margins, the second half as much."""

    def support(self, margins, label):
        """Return the loss."""
        return max(0.0, np.sort(margins)[-2:] @ [0.5, 1.0])

    def vertex(self, margins, label):
        """Return the weights of the margins in it."""
        second, first = np.argsort(margins)[-2:]
        point = np.zeros(len(margins))
        point[first], point[second] = 1.0, 0.5
        point[label] = 0.0
        return point if point @ margins > 0 else 0 * point


X, y = load_digits(return_X_y=True)
X, y = X[:400] / 16, y[:400]
own = MulticlassSVC(NearestRivals(), C=0.1, tol=1e-2, random_state=0).fit(X, y)
print(f"objective {own.objective_:.3f}, gap {own.relative_gap_:.1e} of it")
print("certificate:", own.certificate_)

# %%
# Answers are checked against each other: the bound holds as far as ``vertex`` does what it says.
# With a third method, ``project(point, label)``, the default solver and smoothing can be used;
# without, block Frank-Wolfe is.

# %%
# This loss is one of a known family, so that the two fits can be compared. Python is called for
# each row and pass; a loss that stays is worth a file in Rust, which CONTRIBUTING shows whole.

weights = np.zeros(10)
weights[:2] = 1.0, 0.5
known = MulticlassSVC(WeightedTopK(weights), C=0.1, tol=1e-2, random_state=0).fit(X, y)
print(f"the same loss in Rust: objective {known.objective_:.3f}")
ConvergenceDisplay.from_estimators([own, known], labels=["in Python", "in Rust"], against="epoch")
plt.show()
