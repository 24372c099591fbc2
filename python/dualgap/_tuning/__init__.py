"""Paths of models over C, and searches for C on a grid."""
