"""
Many classes
============

Handwritten digits, one linear function of the pixels for each: which loss, how long, and how sure.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dualgap import MulticlassSVC
from dualgap.losses import Usunier

# %%
# Scale features to similar size first; here to [0, 1].

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=0.5, random_state=0)

# %%
# Three losses. Crammer and Singer's compares the right class with its strongest rival, Weston and
# Watkins' with all of them, Usunier's with the few strongest. ``tol=1e-3`` promises an objective at
# most 0.1 % above the best possible one. Objectives of different losses do not compare; what the
# models do on other rows does.

losses = {
    "Crammer-Singer": "crammer-singer",
    "Weston-Watkins": "weston-watkins",
    "Usunier(3)": Usunier(3),
}
models = {}
for name, loss in losses.items():
    model = MulticlassSVC(loss, C=0.1, tol=1e-3, random_state=0).fit(X_train, y_train)
    models[name] = model
    print(
        f"{name:15} accuracy {model.score(X_test, y_test):.3f} after {model.n_iter_} passes, ",
        end="",
    )
    print(f"gap {model.relative_gap_:.1e} of the objective")

# %%
# A smaller gap costs more passes, and at some point buys nothing: ``undecided`` says which
# predictions more training could still change. The picture shows the weights of two classes, and
# rows that are still open at a gap of 0.1 %.

svm = models["Crammer-Singer"]
undecided = svm.undecided(X_test)
print(f"{undecided.sum()} of {len(X_test)} predictions might change with more training")

figure, axes = plt.subplots(2, 5, figsize=(9, 4), layout="constrained")
for axis, digit in zip(axes[0], range(5), strict=True):
    axis.imshow(svm.coef_[digit].reshape(8, 8), cmap="RdBu", vmin=-0.5, vmax=0.5)
    axis.set_title(f"weights of {digit}")
for axis, row in zip(axes[1], undecided.nonzero()[0], strict=False):
    first, second = svm.predict_top_k(X_test[[row]], 2)[0]
    axis.imshow(X_test[row].reshape(8, 8), cmap="gray_r")
    axis.set_title(f"{first} or {second}?")
for axis in axes.flat:
    axis.axis("off")
plt.show()

# %%
# The rows below are those that a person would look at again, too. To be surer of them make `tol`
# smaller:

for tol in (1e-2, 1e-3, 1e-4, 1e-5):
    closer = MulticlassSVC("crammer-singer", C=0.1, tol=tol, random_state=0).fit(X_train, y_train)
    print(f"gap {closer.relative_gap_:.0e}: {closer.undecided(X_test).sum():3} undecided")
