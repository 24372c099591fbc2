"""Linear multi-category SVMs, with features of classes as well, and the choice of their C."""

from dualgap.multiclass.cv import MulticlassSVCCV
from dualgap.multiclass.features import ClassFeatureSVC
from dualgap.multiclass.svm import MulticlassSVC

__all__ = ["ClassFeatureSVC", "MulticlassSVC", "MulticlassSVCCV"]
