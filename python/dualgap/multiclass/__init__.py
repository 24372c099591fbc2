"""Linear multi-category SVMs, and the choice of their C."""

from dualgap.multiclass.cv import MulticlassSVCCV
from dualgap.multiclass.svm import MulticlassSVC

__all__ = ["MulticlassSVC", "MulticlassSVCCV"]
