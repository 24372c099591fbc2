"""Learning with many outputs, solved to a certificate."""

from typing import TYPE_CHECKING, Any

from dualgap._core import __version__
from dualgap.chunks import Chunks
from dualgap.multiclass import MulticlassSVC, MulticlassSVCCV
from dualgap.polynomial import (
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkClassifierCV,
    PolynomialNetworkRegressor,
)
from dualgap.structured import StructuredSVM

if TYPE_CHECKING:
    from dualgap.recommend import OrdinalRecommender

__all__ = [
    "Chunks",
    "FactorizationMachineClassifier",
    "FactorizationMachineRegressor",
    "MulticlassSVC",
    "MulticlassSVCCV",
    "OrdinalRecommender",
    "PolynomialNetworkClassifier",
    "PolynomialNetworkClassifierCV",
    "PolynomialNetworkRegressor",
    "StructuredSVM",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # The recommender needs pandas, which the other estimators do without.
    if name == "OrdinalRecommender":
        from dualgap.recommend import OrdinalRecommender

        return OrdinalRecommender
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
