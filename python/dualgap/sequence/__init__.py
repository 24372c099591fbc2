"""Sequence labelling: taggers of sentences, trained to a duality gap of your choice."""

from dualgap.sequence._tables import LabelledTable
from dualgap.sequence.metrics import chunk_f1
from dualgap.sequence.path import TaggerPiece
from dualgap.sequence.tagger import SequenceTagger

__all__ = ["LabelledTable", "SequenceTagger", "TaggerPiece", "chunk_f1"]
