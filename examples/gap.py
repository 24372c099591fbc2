"""
Reading a duality gap
=====================

A fit minimises an objective whose optimum is unknown. A dual value is a lower bound on the optimum.
The *duality gap* is the distance between the two, and bounds the gain of further training.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dualgap import MulticlassSVC

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=0.5, random_state=0)

# %%
# A flat curve is not a converged curve
# -------------------------------------
#
# Two solvers minimise the same objective. After sixty passes, the curve of the subgradient method
# is nearly flat, but the objective is still a third above the optimum. Its gap shows that it may be
# far from converged. The gap of block descent shows that block descent has converged.


def stop_after(passes):
    """Return a callback that ends a fit after a number of passes by returning True."""
    return lambda epoch, *_: epoch >= passes


slow = MulticlassSVC(
    C=1.0, solver="subgradient", tol=1e-6, callback=stop_after(60), random_state=0
).fit(X_train, y_train)
fast = MulticlassSVC(C=1.0, tol=1e-6, callback=stop_after(60), random_state=0)
fast.fit(X_train, y_train)
for model in (slow, fast):
    print(f"{model.solver}: objective {model.objective_:.4f}, gap {model.relative_gap_:.1e} of it")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name, model in {"subgradient": slow, "block descent": fast}.items():
    known = np.isfinite(model.history_["gap"])
    epochs, objective, gap = (
        model.history_[column][known] for column in ("epoch", "objective", "gap")
    )
    left.plot(epochs, objective, label=name)
    right.semilogy(epochs, gap / objective, label=name)
left.set(xlabel="passes", title="Objective", ylim=(0, 0.4))
right.set(xlabel="passes", title="Gap, relative to the objective")
left.legend()
right.legend()
plt.show()

# %%
# How small a gap is small enough
# -------------------------------
#
# ``tol`` is relative: ``tol=0.001`` ends a fit whose objective is at most 0.1 % above the optimum.
# Accuracy stops changing long before that, but only the gap tells you so without a second, longer
# fit. ``prediction_may_change`` turns the gap into a statement about single rows: it marks the rows
# whose class may differ at the optimum. No further training can change the class of the other rows.

gaps, scores, decided = [], [], []
for passes in range(1, 14):
    model = MulticlassSVC(C=0.1, tol=1e-9, callback=stop_after(passes), random_state=0)
    model.fit(X_train, y_train)
    gaps.append(model.relative_gap_)
    scores.append(model.score(X_test, y_test))
    decided.append(1 - model.prediction_may_change(X_test).mean())

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.semilogx(gaps, scores, "o-", label="accuracy on test rows")
axis.semilogx(gaps, decided, "o-", label="share of test rows whose class is certain")
axis.axvline(1e-3, color="grey", linewidth=1, label="the default of tol")
axis.set(xlabel="gap, relative to the objective")
axis.invert_xaxis()
axis.legend()
plt.show()

# %%
# Choosing tol
# ------------
#
# ====================  =====================================================================
# relative gap          use
# ====================  =====================================================================
# 0.1                   a first look; the default of hinge-loss taggers
# 0.01                  choosing C and features: scores hardly change below it
# 0.001, the default    final models
# 0.00001 and below     interpreting weights, certainty about rows, comparing solvers
# ====================  =====================================================================
#
# Limits of a certificate
# -----------------------
#
# - A certificate does not tell you whether the model is good. The exact optimum for a bad C is a
#   bad model: choose C on held-out rows.
# - For new rows, it only tells you which class the exact optimum would predict.
# - ``certificate_`` states its conditions. For a custom structured model, it holds if the decoder
#   is exact; the recommender's default method has no bound and reports none.
#
# A fit that ends before it reaches ``tol`` warns and reports its gap. That is also a result: the
# model's objective is at most that far from the optimum.
