"""Logistic regression: class probabilities from linear scores, with a certificate."""

from dualgap.logistic.regression import LogisticRegression

__all__ = ["LogisticRegression"]
