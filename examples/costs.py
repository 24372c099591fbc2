"""
Costs of mistakes
=================

Some mistakes cost more than others: classifying a severe case as mild is worse than the reverse.
``StructuredHinge`` takes a table of costs, and the model learns to avoid expensive mistakes.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import confusion_matrix

from dualgap import MulticlassSVC
from dualgap.losses import StructuredHinge

# %%
# The classes are four grades of severity, measured with noise.

rng = np.random.default_rng(0)
y = rng.integers(4, size=2000)
X = np.column_stack([y + rng.normal(size=2000), (y - 1.5) ** 2 + rng.normal(size=2000)])
X = np.column_stack([X / 3, rng.normal(size=(2000, 3)) / 3])
X_train, X_test, y_train, y_test = X[:1000], X[1000:], y[:1000], y[1000:]

# %%
# Rows are true grades, and columns are predicted grades. A prediction costs 4 for each grade by
# which it is too low, and 1 for each grade by which it is too high.

grades = np.arange(4)
difference = grades - grades[:, None]
costs = np.where(difference < 0, -4.0 * difference, difference)
print(costs)

# %%
# `C` is the weight of the losses. Larger costs mean larger losses, so the model with costs uses a
# smaller `C`.

plain = MulticlassSVC(C=10.0, tol=1e-2, random_state=0).fit(X_train, y_train)
careful = MulticlassSVC(StructuredHinge(costs), C=2.5, tol=1e-2, random_state=0)
careful.fit(X_train, y_train)

figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
for axis, (title, model) in zip(
    axes, {"equal costs": plain, "with costs": careful}.items(), strict=True
):
    predicted = model.predict(X_test)
    counts = confusion_matrix(y_test, predicted)
    cost = costs[y_test, predicted].mean()
    print(f"{title}: accuracy {(predicted == y_test).mean():.3f}, mean cost {cost:.3f}")
    axis.imshow(counts, cmap="Blues")
    for (right, guess), count in np.ndenumerate(counts):
        axis.text(guess, right, str(count), ha="center", va="center")
    axis.set_xticks(grades)
    axis.set_yticks(grades)
    axis.set(title=f"{title}: mean cost {cost:.2f}", xlabel="predicted grade", ylabel="true grade")
plt.show()

# %%
# The model with costs has about the same accuracy, but its mistakes are cheaper. Costs can also
# differ from row to row (``per_row=True``). ``class_weight`` and ``sample_weight`` weight rows,
# independently of the kind of mistake.
