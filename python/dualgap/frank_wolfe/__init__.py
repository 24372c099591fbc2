"""Frank-Wolfe methods for any smooth convex function over any set with a linear oracle."""

from dualgap.frank_wolfe._functions import LeastSquares, Logistic, MatrixCompletion
from dualgap.frank_wolfe._minimize import minimize
from dualgap.frank_wolfe._result import LowRankMatrix, Minimum
from dualgap.frank_wolfe._sets import (
    Birkhoff,
    ConvexHull,
    KSparse,
    L1Ball,
    NuclearNormBall,
    Product,
    Simplex,
)

__all__ = [
    "Birkhoff",
    "ConvexHull",
    "KSparse",
    "L1Ball",
    "LeastSquares",
    "Logistic",
    "LowRankMatrix",
    "MatrixCompletion",
    "Minimum",
    "NuclearNormBall",
    "Product",
    "Simplex",
    "minimize",
]
