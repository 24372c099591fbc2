"""Multi-category SVMs over data that do not fit one machine: consensus training on Dask."""

from dualgap.distributed.svm import ConsensusSVC

__all__ = ["ConsensusSVC"]
