"""Sequence labelling: taggers for sentences, trained to a given duality gap."""

from dualgap.sequence._tables import LabelledTable
from dualgap.sequence.columns import read_conll
from dualgap.sequence.crfsuite import read_crfsuite, write_crfsuite
from dualgap.sequence.features import word_features
from dualgap.sequence.metrics import chunk_f1
from dualgap.sequence.path import TaggerPiece
from dualgap.sequence.schemes import repair_labels
from dualgap.sequence.tagger import SequenceTagger

__all__ = [
    "LabelledTable",
    "SequenceTagger",
    "TaggerPiece",
    "chunk_f1",
    "read_conll",
    "read_crfsuite",
    "repair_labels",
    "word_features",
    "write_crfsuite",
]
