"""
Top-k
=====

If classes are hard to distinguish, a program can suggest several of them. Top-k losses train models
for this purpose: the true class should be among the k best, in any order.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import top_k_accuracy_score

from dualgap import MulticlassSVC
from dualgap.losses import TopK

# %%
# The forty classes form overlapping groups of four, so that the best guess is often wrong, but the
# true class is usually among the best three.

rng = np.random.default_rng(0)
groups = rng.normal(size=(10, 12))
centres = np.repeat(groups, 4, axis=0) + 0.35 * rng.normal(size=(40, 12))
y = rng.integers(40, size=3000)
X = centres[y] + 0.6 * rng.normal(size=(3000, 12))
X_train, X_test, y_train, y_test = X[:1500], X[1500:], y[:1500], y[1500:]

# %%
# ``TopK(k)`` takes the mean of the k largest margins; ``TopK(1)`` is Crammer and Singer's loss.

models = {}
for k in (1, 3, 5):
    models[k] = MulticlassSVC(TopK(k), C=1.0, tol=1e-2, random_state=0).fit(X_train, y_train)
print(models[3].predict_top_k(X_test[:2], 3))

# %%
# The share of test rows whose true class is among the first k:

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
places = np.arange(1, 7)
for k, model in models.items():
    scores = model.decision_function(X_test)
    shares = [top_k_accuracy_score(y_test, scores, k=place) for place in places]
    axis.plot(places, shares, "o-", label=f"TopK({k})")
    print(k, [round(float(share), 3) for share in shares])
axis.set(xlabel="classes that are shown", ylabel="share with the true class among them")
axis.legend()
plt.show()

# %%
# ``WeightedTopK(weights)`` gives each place a weight; ``Usunier`` counts only rivals with positive
# margins. The command line also supports these losses: ``dualgap fit --loss top-k --k 3``.
