"""Recommendation by ordinal regression on multi-output factorization machines."""

from dualgap.recommend.recommender import OrdinalRecommender

__all__ = ["OrdinalRecommender"]
