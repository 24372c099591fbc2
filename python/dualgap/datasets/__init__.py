"""MovieLens ratings from several sources, and synthetic ratings of any size."""

from dualgap.datasets.movielens import Ratings, fetch_movielens
from dualgap.datasets.synthetic import synthetic_ratings

__all__ = ["Ratings", "fetch_movielens", "synthetic_ratings"]
