"""
Choosing C
==========

`MulticlassSVCCV` chooses C by cross-validation in one call. It also bounds each score: the duality
gap of a fit gives an interval for the score of the exact optimum.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from dualgap import MulticlassSVC, MulticlassSVCCV
from dualgap.plotting import CrossValidationDisplay

# %%
# By default, fits stop at the relative gap ``cv_tol``, after which scores hardly change. The bounds
# on the exact optima's scores are then wide. With ``bounds=0.02``, the fits for a C continue until
# the bounds of their mean score are at most 0.02 apart, or show that another C is better.

X, y = load_digits(return_X_y=True)
X = X / 16
Cs = np.logspace(-3, 0.5, 8)
quick = MulticlassSVCCV(Cs=Cs, random_state=0).fit(X, y)
search = MulticlassSVCCV(Cs=Cs, bounds=0.02, random_state=0).fit(X, y)
for C, score, (lower, upper) in zip(Cs, search.mean_score_, search.mean_score_bounds_, strict=True):
    print(f"C {C:6.4f}: score {score:.3f}, for the exact optima {lower:.3f} to {upper:.3f}")
print(f"chosen: {search.C_:.4f}, and without bounds {quick.C_:.4f}")

# %%
# The bars show the spread over the folds, which more training does not reduce. If the band of the
# bounds is narrower than the bars, more accurate fits tell you nothing more about C; more data may.

CrossValidationDisplay.from_estimator(search)
plt.show()

# %%
# Several values of C may have scores within this spread of the best score. The smallest of these
# values gives the strongest regularisation:

cautious = MulticlassSVCCV(Cs=Cs, rule="one-standard-error", random_state=0).fit(X, y)
print(f"one standard error: {cautious.C_:.4f}")

# %%
# `MulticlassSVC.path` needs no list of values: it covers an interval of C with models, each
# certified on a part of the interval.

pieces = MulticlassSVC(tol=0.2, random_state=0).path(X[:300], y[:300], C_min=0.01, C_max=0.1)
print([f"{piece.C_min:.3f} to {piece.C_max:.3f}" for piece in pieces])
