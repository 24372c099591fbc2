"""Draw the picture of the README and of the start page: the certificate during a fit.

Usage: python docs/pictures/overview.py [FILE]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from dualgap import MulticlassSVC

PASSES = range(1, 15)


def stop_after(passes: int) -> Callable[..., bool]:
    """Return a callback that ends a fit after a number of passes."""
    return lambda epoch, *_: epoch >= passes


def main() -> None:
    """Draw both sides."""
    digits, labels = load_digits(return_X_y=True)
    X = digits / 16.0
    fits = []
    for passes in PASSES:
        model = MulticlassSVC(C=0.1, tol=1e-9, callback=stop_after(passes))
        fits.append(model.set_params(random_state=0, n_jobs=1).fit(X, labels))
    history = fits[-1].history_

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    known = np.isfinite(history["gap"])
    epochs, above, below = (
        history[name][known] for name in ("epoch", "objective", "dual_objective")
    )
    left.plot(epochs, above, "o-", label="objective of the model")
    left.plot(epochs, below, "o-", label="lower bound on the optimum")
    left.fill_between(epochs, below, above, alpha=0.2, label="range of the optimum")
    left.set(xlim=(0.5, 12.5), xlabel="passes over the data")
    left.set_title("Bounds during a fit")
    left.legend(frameon=False)

    gaps = [model.relative_gap_ for model in fits]
    right.semilogx(
        gaps, [1 - model.prediction_may_change(X).mean() for model in fits], "o-", color="C2"
    )
    right.set(xlabel="duality gap, relative to the objective", ylabel="share of the rows")
    right.set(title="Rows whose class is certain")
    right.invert_xaxis()
    for side in (left, right):
        side.spines[["top", "right"]].set_visible(False)
    figure.savefig(sys.argv[1] if sys.argv[1:] else Path(__file__).with_suffix(".png"), dpi=120)


if __name__ == "__main__":
    main()
