"""Import the installed package and fit a small model, to show that a wheel is complete."""

from pathlib import Path

import numpy as np

import dualgap

here = Path(dualgap.__file__).parent
assert "site-packages" in str(here), f"not the installed package: {here}"
assert (here / "py.typed").exists()
assert (here / "_core.pyi").exists()

X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] * 5) - 0.5
y = X[:, 0] * X[:, 1] > 0
model = dualgap.FactorizationMachineClassifier(4, alpha=0.1, radius=1.0, n_jobs=2).fit(X, y)
assert model.score(X, y) == 1.0, "the smoke fit failed"
print(f"dualgap {dualgap.__version__}: the wheel imports and fits")
