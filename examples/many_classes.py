"""
Many classes
============

Classify handwritten digits with linear models: compare losses, training time and certainty.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dualgap import MulticlassSVC
from dualgap.losses import Usunier

# %%
# First scale all features to a similar range, here [0, 1].

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=0.5, random_state=0)

# %%
# The loss of Crammer and Singer compares the true class with its strongest rival. The loss of
# Weston and Watkins compares it with all rivals, and Usunier's loss with a few of the strongest
# rivals. ``tol=1e-3`` guarantees an objective at most 0.1 % above the minimum. Objectives of
# different losses are not comparable, so compare the accuracy on held-out rows.

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
# A smaller gap takes more passes, and at some point makes no difference: ``prediction_may_change``
# marks the predictions that more training could still change. The plot shows the weights of five
# classes, and rows marked at a gap of 0.1 %.

svm = models["Crammer-Singer"]
unsure = svm.prediction_may_change(X_test)
print(f"{unsure.sum()} of {len(X_test)} predictions might change with more training")

figure, axes = plt.subplots(2, 5, figsize=(9, 4), layout="constrained")
for axis, digit in zip(axes[0], range(5), strict=True):
    axis.imshow(svm.coef_[digit].reshape(8, 8), cmap="RdBu", vmin=-0.5, vmax=0.5)
    axis.set_title(f"weights of {digit}")
for axis, row in zip(axes[1], unsure.nonzero()[0], strict=False):
    first, second = svm.predict_top_k(X_test[[row]], 2)[0]
    axis.imshow(X_test[row].reshape(8, 8), cmap="gray_r")
    axis.set_title(f"{first} or {second}?")
for axis in axes.flat:
    axis.axis("off")
plt.show()

# %%
# These rows are hard to classify for a person, too. With a smaller `tol`, fewer rows are marked:

for tol in (1e-2, 1e-3, 1e-4, 1e-5):
    closer = MulticlassSVC("crammer-singer", C=0.1, tol=tol, random_state=0).fit(X_train, y_train)
    n_unsure = closer.prediction_may_change(X_test).sum()
    print(f"gap {closer.relative_gap_:.0e}: {n_unsure:3} may change")
