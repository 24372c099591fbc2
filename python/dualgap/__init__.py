"""Learning with many outputs, solved to a certificate."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dualgap._core import __version__
from dualgap.chunks import Chunks
from dualgap.multiclass import ClassFeatureSVC, MulticlassSVC, MulticlassSVCCV
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
    "ClassFeatureSVC",
    "FactorizationMachineClassifier",
    "FactorizationMachineRegressor",
    "MulticlassSVC",
    "MulticlassSVCCV",
    "PolynomialNetworkClassifier",
    "PolynomialNetworkClassifierCV",
    "PolynomialNetworkRegressor",
    "StructuredSVM",
    "__version__",
]
# The recommender needs pandas, which the other estimators and `import *` do without.
if find_spec("pandas") is not None:
    __all__ += ["OrdinalRecommender"]


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: pandas takes longer to import than everything else here.
    if name == "OrdinalRecommender":
        if find_spec("pandas") is None:
            msg = "OrdinalRecommender needs pandas: pip install 'dualgap[recommend]'"
            raise ImportError(msg, name="pandas")
        from dualgap.recommend import OrdinalRecommender

        return OrdinalRecommender
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
