"""Recommendation by ordinal regression on multi-output factorization machines."""

from dualgap.recommend import splits
from dualgap.recommend._click_model import Interactions
from dualgap.recommend._conditional_gradient import ConditionalGradient
from dualgap.recommend._features import TimeFeatures
from dualgap.recommend._variational import Variational
from dualgap.recommend.recommender import OrdinalRecommender

__all__ = [
    "ConditionalGradient",
    "Interactions",
    "OrdinalRecommender",
    "TimeFeatures",
    "Variational",
    "splits",
]
