"""Structured support vector machines, trained to a given duality gap."""

from dualgap.structured.chain import ChainModel
from dualgap.structured.cv import StructuredCV
from dualgap.structured.matching import MatchingModel
from dualgap.structured.models import Model
from dualgap.structured.multiclass import MulticlassModel
from dualgap.structured.multilabel import MultilabelModel
from dualgap.structured.path import StructuredPiece
from dualgap.structured.svm import StructuredSVM

__all__ = [
    "ChainModel",
    "MatchingModel",
    "Model",
    "MulticlassModel",
    "MultilabelModel",
    "StructuredCV",
    "StructuredPiece",
    "StructuredSVM",
]
