"""Fast models with many outputs that report how far from optimal they are."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dualgap._core import __version__

if TYPE_CHECKING:
    from dualgap._report import report
    from dualgap.chunks import Chunks
    from dualgap.distributed import ConsensusCV, ConsensusLogisticRegression, ConsensusSVC
    from dualgap.logistic import (
        ClassFeatureLogisticRegression,
        LogisticRegression,
        LogisticRegressionCV,
    )
    from dualgap.multiclass import ClassFeatureSVC, MulticlassSVC, MulticlassSVCCV
    from dualgap.polynomial import (
        FactorizationMachineClassifier,
        FactorizationMachineRegressor,
        PolynomialNetworkClassifier,
        PolynomialNetworkClassifierCV,
        PolynomialNetworkRegressor,
    )
    from dualgap.recommend import OrdinalRecommender
    from dualgap.sequence import SequenceTagger
    from dualgap.structured import StructuredCV, StructuredSVM

__all__ = [
    "Chunks",
    "ClassFeatureLogisticRegression",
    "ClassFeatureSVC",
    "ConsensusCV",
    "ConsensusLogisticRegression",
    "ConsensusSVC",
    "FactorizationMachineClassifier",
    "FactorizationMachineRegressor",
    "LogisticRegression",
    "LogisticRegressionCV",
    "MulticlassSVC",
    "MulticlassSVCCV",
    "PolynomialNetworkClassifier",
    "PolynomialNetworkClassifierCV",
    "PolynomialNetworkRegressor",
    "SequenceTagger",
    "StructuredCV",
    "StructuredSVM",
    "__version__",
    "report",
]
# The recommender needs pandas, an optional dependency.
if find_spec("pandas") is not None:
    __all__ += ["OrdinalRecommender"]

# Imported on first use: scikit-learn loads slowly, and the command line's help does not need it.
_HOME = {
    "Chunks": "chunks",
    "ClassFeatureLogisticRegression": "logistic",
    "ClassFeatureSVC": "multiclass",
    "ConsensusCV": "distributed",
    "ConsensusLogisticRegression": "distributed",
    "ConsensusSVC": "distributed",
    "FactorizationMachineClassifier": "polynomial",
    "FactorizationMachineRegressor": "polynomial",
    "LogisticRegression": "logistic",
    "LogisticRegressionCV": "logistic",
    "MulticlassSVC": "multiclass",
    "MulticlassSVCCV": "multiclass",
    "OrdinalRecommender": "recommend",
    "PolynomialNetworkClassifier": "polynomial",
    "PolynomialNetworkClassifierCV": "polynomial",
    "PolynomialNetworkRegressor": "polynomial",
    "SequenceTagger": "sequence",
    "StructuredCV": "structured",
    "StructuredSVM": "structured",
    "report": "_report",
}
_MODULES = {*_HOME.values(), "datasets", "export", "frank_wolfe", "losses", "metrics", "plotting"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"dualgap.{name}")
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        if name == "load":
            msg += "; each class loads its own models, as in MulticlassSVC.load(path)"
        raise AttributeError(msg)
    if name == "OrdinalRecommender" and find_spec("pandas") is None:
        msg = "OrdinalRecommender requires pandas: pip install 'dualgap[recommend]'"
        raise ImportError(msg, name="pandas")
    globals()[name] = getattr(import_module(f"dualgap.{_HOME[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    # Leave out the names that this file imports.
    dunder = {name for name in globals() if name.startswith("__")}
    return sorted({*dunder, *_HOME, *_MODULES} - {"_report"})
