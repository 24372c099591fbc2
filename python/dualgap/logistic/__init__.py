"""Logistic regression: class probabilities from linear scores, with a certificate."""

from dualgap.logistic.class_features import ClassFeatureLogisticRegression
from dualgap.logistic.cv import LogisticRegressionCV
from dualgap.logistic.regression import LogisticRegression

__all__ = ["ClassFeatureLogisticRegression", "LogisticRegression", "LogisticRegressionCV"]
