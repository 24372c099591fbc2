"""What every choice of C shares: paths of models over it, and searches on a grid."""
