"""Learning with many outputs, solved to a certificate."""

from dualgap._core import __version__
from dualgap.polynomial import (
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
)

__all__ = [
    "FactorizationMachineClassifier",
    "FactorizationMachineRegressor",
    "PolynomialNetworkClassifier",
    "PolynomialNetworkRegressor",
    "__version__",
]
