"""Multi-category SVMs for data larger than one machine's memory: consensus training on Dask."""

from dualgap.distributed.svm import ConsensusSVC

__all__ = ["ConsensusSVC"]
