"""
Choosing C
==========

`MulticlassSVCCV` chooses C by cross-validation in one call, and says how much of a score is
certain: a duality gap bounds the score that the exact optimum would have.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from dualgap import MulticlassSVC, MulticlassSVCCV
from dualgap.plotting import CrossValidationDisplay

# %%
# As they come, fits end at a gap of 1 % of the objective, after which scores hardly move. But what
# is known of the exact optima is then next to nothing: ``bounds=0.02`` asks for scores that are
# known to .02.

X, y = load_digits(return_X_y=True)
X = X / 16
Cs = np.logspace(-3, 0.5, 8)
quick = MulticlassSVCCV(Cs=Cs, random_state=0).fit(X, y)
search = MulticlassSVCCV(Cs=Cs, bounds=0.02, random_state=0).fit(X, y)
for C, score, (lower, upper) in zip(Cs, search.mean_score_, search.mean_score_bounds_, strict=True):
    print(f"C {C:6.4f}: {score:.3f}, that of the exact optima {lower:.3f} to {upper:.3f}")
print(f"chosen: {search.C_:.4f}, and without bounds {quick.C_:.4f}")

# %%
# The bars are the spread over the folds, which no training changes. Where the band of the bounds is
# narrower, more accurate fits cannot tell you more about C; more data can.

CrossValidationDisplay.from_estimator(search)
plt.show()

# %%
# Several C may be as good as the best within that spread: the smallest of them has the smallest
# weights.

cautious = MulticlassSVCCV(Cs=Cs, rule="one-standard-error", random_state=0).fit(X, y)
print(f"one standard error: {cautious.C_:.4f}")

# %%
# `MulticlassSVC.path` needs no list: it covers an interval of C with models, each of them certified
# for a part of it.

pieces = MulticlassSVC(tol=0.2, random_state=0).path(X[:300], y[:300], C_min=0.01, C_max=0.1)
print([f"{piece.C_min:.3f} to {piece.C_max:.3f}" for piece in pieces])
