"""Class probabilities of logistic regression and of calibrated margin losses, on held-out rows.

    python benches/probabilities.py [data sets] [--again]

C of each model is chosen by five-fold cross-validation on the training rows: by log loss for
`LogisticRegression`, by accuracy for `MulticlassSVC`. "softmax" takes the scores of the SVM as
logits. "temperature" and "sigmoid" calibrate them on the scores of held-out folds of the training
rows (scikit-learn's `CalibratedClassifierCV` with ``ensemble=False``). The calibration error is the
mean absolute difference between confidence and accuracy over 15 bins of the largest probability,
weighted by the number of rows in each bin (Guo, Pleiss, Sun and Weinberger 2017).
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from _data import split
from _record import Table, origin
from scipy.special import softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss

from dualgap import LogisticRegression, LogisticRegressionCV, MulticlassSVC, MulticlassSVCCV

SETS = ["segment", "dna", "satimage", "vowel", "letter", "news20"]
CS = [0.01, 0.1, 1.0, 10.0, 100.0]
BINS = 15


def calibration_error(probabilities: Any, right: Any) -> float:
    """Return the mean absolute difference between confidence and accuracy over bins."""
    confidence = probabilities.max(axis=1)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    difference = np.bincount(bins, confidence - right, minlength=BINS)
    return float(np.abs(difference).sum() / len(right))


def models(X: Any, y: Any) -> dict[str, tuple[float, Any]]:
    """Map each method to its C, and a function that returns the probabilities of rows."""
    search = LogisticRegressionCV(Cs=CS, scoring="neg_log_loss", refit=False).fit(X, y)
    logistic = LogisticRegression(search.C_, random_state=0).fit(X, y)
    svms = MulticlassSVCCV(Cs=CS, random_state=0, refit=False).fit(X, y)
    svm = MulticlassSVC(C=svms.C_, random_state=0).fit(X, y)
    found = {
        "logistic": (search.C_, logistic.predict_proba),
        "SVM, softmax": (svms.C_, lambda rows: softmax(svm.decision_function(rows), axis=1)),
    }
    for name, model, C in (("SVM", svm, svms.C_), ("logistic", logistic, search.C_)):
        for method in ("temperature", "sigmoid") if name == "SVM" else ("temperature",):
            calibrated = CalibratedClassifierCV(model, method=method, cv=5, ensemble=False)
            found[f"{name}, {method}"] = (C, calibrated.fit(X, y).predict_proba)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=SETS)
    parser.add_argument("--again", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    table = Table("probabilities", "data", "method")
    for name in arguments.names:
        done = [row for row in table.read() if row["data"] == name]
        if not arguments.again and any(row["commit"] == origin()["commit"] for row in done):
            continue
        X, y, tested, labels = split(name)
        # scikit-learn 1.9 scales the temperature correctly only for the labels 0, 1, ...
        classes, y = np.unique(y, return_inverse=True)
        labels = np.searchsorted(classes, labels)
        for method, (C, predict) in models(X, y).items():
            probabilities = predict(tested)
            right = probabilities.argmax(axis=1) == labels
            table.add(
                data=name, method=method, C=C, accuracy=right.mean(),
                log_loss=log_loss(labels, probabilities, labels=np.arange(len(classes))),
                calibration_error=calibration_error(probabilities, right), simd="",
            )  # fmt: skip


if __name__ == "__main__":
    main()
