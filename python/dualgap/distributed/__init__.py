"""Training on data larger than one machine's memory, with Dask, Ray or Spark."""

from dualgap.distributed.cv import ConsensusCV
from dualgap.distributed.logistic import ConsensusLogisticRegression
from dualgap.distributed.svm import ConsensusSVC

__all__ = ["ConsensusCV", "ConsensusLogisticRegression", "ConsensusSVC"]
