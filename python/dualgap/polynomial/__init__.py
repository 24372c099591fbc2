"""Multi-output polynomial networks and factorization machines.

Blondel, Niculae, Otsuka, Ueda: Multi-output Polynomial Networks and Factorization Machines,
NIPS 2017.
"""

from dualgap.polynomial.classifier import (
    FactorizationMachineClassifier,
    PolynomialNetworkClassifier,
)
from dualgap.polynomial.cv import PolynomialNetworkClassifierCV
from dualgap.polynomial.regressor import FactorizationMachineRegressor, PolynomialNetworkRegressor

__all__ = [
    "FactorizationMachineClassifier",
    "FactorizationMachineRegressor",
    "PolynomialNetworkClassifier",
    "PolynomialNetworkClassifierCV",
    "PolynomialNetworkRegressor",
]
