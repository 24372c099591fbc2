"""
Custom losses
=============

`MulticlassSVC` knows many losses by name. Any other loss is an object with two methods. Fits with
such a loss are certified like fits with a built-in loss.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from dualgap import MulticlassSVC
from dualgap.losses import WeightedTopK
from dualgap.plotting import ConvergenceDisplay

# %%
# A loss is a maximum of weighted sums of margins, ``max over b in B of b @ margins``, where
# ``margins[j]`` is how far class j violates its margin to the true class. ``support`` returns this
# maximum, and ``vertex`` returns a ``b`` that attains it. In this example, the strongest rival
# counts in full, and the second strongest counts half.


class NearestRivals:
    """Largest margin plus half of the second largest."""

    def support(self, margins, label):
        """Return the loss."""
        return max(0.0, np.sort(margins)[-2:] @ [0.5, 1.0])

    def vertex(self, margins, label):
        """Return the weights of the margins in the loss."""
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
# The fit checks that the two methods agree; the bound is valid if ``vertex`` is correct. A third
# method, ``project(point, label)``, enables the default solver and smoothing. Without it, the fit
# uses block Frank-Wolfe.

# %%
# This loss belongs to a built-in family, so we can compare the two fits. The fit calls Python for
# each row in each pass. A loss that you use often is worth an implementation in Rust; CONTRIBUTING
# shows a complete implementation.

weights = np.zeros(10)
weights[:2] = 1.0, 0.5
known = MulticlassSVC(WeightedTopK(weights), C=0.1, tol=1e-2, random_state=0).fit(X, y)
print(f"the built-in loss: objective {known.objective_:.3f}")
ConvergenceDisplay.from_estimators([own, known], labels=["in Python", "in Rust"], against="epoch")
plt.show()
