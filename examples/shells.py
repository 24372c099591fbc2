"""
Classes that no linear model separates
======================================

A polynomial network uses products of features. Its outputs share a basis to which the fit adds one
vector at a time. The certificate bounds the gain of any further vector.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_gaussian_quantiles
from sklearn.linear_model import LogisticRegression

from dualgap import PolynomialNetworkClassifier

# %%
# The three classes form nested shells.

X, y = make_gaussian_quantiles(n_samples=1500, n_features=2, n_classes=3, random_state=0)
X_train, X_test, y_train, y_test = X[:1000], X[1000:], y[:1000], y[1000:]

network = PolynomialNetworkClassifier(20, radius=50.0, tol=0.02, random_state=0)
network.fit(X_train, y_train)
linear = LogisticRegression().fit(X_train, y_train)
print(f"accuracy: linear {linear.score(X_test, y_test):.3f}, ", end="")
print(f"network {network.score(X_test, y_test):.3f} with {len(network.components_)} basis vectors")
print(f"gap {network.relative_gap_:.1e} of the objective; certificate: {network.certificate_}")

# %%
# One fit gives the whole curve over the number of basis vectors. The picture shows the curve and
# the regions.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
grid = np.stack(np.meshgrid(np.linspace(-3, 3, 200), np.linspace(-3, 3, 200)), axis=-1)
regions = network.predict(grid.reshape(-1, 2)).reshape(200, 200)
left.contourf(grid[..., 0], grid[..., 1], regions, levels=2, alpha=0.4)
left.scatter(*X_test.T, c=y_test, s=6)
left.set_title("Test rows, and the classes that are predicted")
history = network.history_
right.plot(history["n_components"], history["objective"], "o-", label="objective")
right.plot(history["n_components"], history["dual_objective"], "o-", label="bound")
right.set(xlabel="basis vectors", ylim=(0, 1200), title="Objective and bound")
right.legend()
plt.show()

# %%
# A factorization machine leaves out the squares of single features, which suits one-hot rows: see
# the guide to polynomial networks.
