"""Fast models with many outputs that report how far from optimal they are."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dualgap._core import __version__
from dualgap.chunks import Chunks
from dualgap.logistic import LogisticRegression
from dualgap.multiclass import ClassFeatureSVC, MulticlassSVC, MulticlassSVCCV
from dualgap.polynomial import (
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkClassifierCV,
    PolynomialNetworkRegressor,
)
from dualgap.structured import StructuredCV, StructuredSVM

if TYPE_CHECKING:
    from dualgap.distributed import ConsensusSVC
    from dualgap.recommend import OrdinalRecommender
    from dualgap.sequence import SequenceTagger

__all__ = [
    "Chunks",
    "ClassFeatureSVC",
    "ConsensusSVC",
    "FactorizationMachineClassifier",
    "FactorizationMachineRegressor",
    "LogisticRegression",
    "MulticlassSVC",
    "MulticlassSVCCV",
    "PolynomialNetworkClassifier",
    "PolynomialNetworkClassifierCV",
    "PolynomialNetworkRegressor",
    "SequenceTagger",
    "StructuredCV",
    "StructuredSVM",
    "__version__",
]
# The recommender needs pandas, an optional dependency.
if find_spec("pandas") is not None:
    __all__ += ["OrdinalRecommender"]

# Imported on first use: these modules, or those that they import, load slowly.
_LAZY = {
    "ConsensusSVC": "dualgap.distributed",
    "OrdinalRecommender": "dualgap.recommend",
    "SequenceTagger": "dualgap.sequence",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    if name == "OrdinalRecommender" and find_spec("pandas") is None:
        msg = "OrdinalRecommender needs pandas: pip install 'dualgap[recommend]'"
        raise ImportError(msg, name="pandas")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
