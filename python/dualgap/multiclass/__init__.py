"""Linear multi-category SVMs, SVMs on class features, and cross-validation of C."""

from dualgap.multiclass.cv import MulticlassSVCCV
from dualgap.multiclass.features import ClassFeatureSVC
from dualgap.multiclass.svm import MulticlassSVC

__all__ = ["ClassFeatureSVC", "MulticlassSVC", "MulticlassSVCCV"]
