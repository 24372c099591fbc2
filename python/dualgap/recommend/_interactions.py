"""The settings of models of clicks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator

from dualgap._estimator import storable
from dualgap._validation import FloatArray, check_bool, check_positive

__all__ = ["Interactions"]


# Not an estimator, but scikit-learn reads, sets, clones and searches its parameters like one's.
@storable
@dataclass(kw_only=True, repr=False)
class Interactions(BaseEstimator):  # type: ignore[misc]
    """Model of which items users take up, from clicks or from the likes among ratings.

    Three scorers rank the whole catalogue (``rank_by="like"``): factors fitted by least squares
    over all pairs of users and items [1]_, the graph of items that the same users clicked [2]_,
    and a regression of each item on the others [3]_. The score is their weighted sum, each in units
    of its standard deviation over the catalogue. Held-out clicks of a sample of the users choose
    the weights.

    A rating that is a like has the target 1, another rating `other`, and every pair without a
    rating the target 0 with the weight `unobserved`.

    Parameters
    ----------
    n_components : int, optional
        Length of the vectors of users and items. By default it grows with the number of users or
        items, whichever is smaller, from 64 to 192.
    like : float, optional
        Smallest rating that is a like. None means the upper quarter of the levels' range, 4 of 1 to
        5; for ``reduction="interactions"`` it means that values are no ratings but counts.
    other : float, default=0.6
        Target of ratings below `like`: less than a like, but more than a pair without a rating,
        since users rate items that interest them.
    unobserved : float, optional
        Weight of a pair without a rating, compared with 1 for a pair with one. By default three
        times the share of pairs that have a rating.
    ridge : float, optional
        Ridge on the vectors, in units of the root of the weights of a user's or an item's pairs. By
        default held-out clicks choose 0.1 or 0.3; without `blend` it is 0.3.
    blend : bool, default=True
        Whether to add the item-item models. Without them the factors alone rank, and the fit takes
        a fraction of the time.
    max_iter : int, default=15
        Largest number of sweeps over both sides.
    tol : float, default=1e-3
        Share of the objective below which a sweep's gain ends the fit.

    References
    ----------
    .. [1] S. Rendle, W. Krichene, L. Zhang and Y. Koren, Revisiting the performance of iALS on item
       recommendation benchmarks, RecSys 2022; Y. Hu, Y. Koren and C. Volinsky, Collaborative
       filtering for implicit feedback datasets, ICDM 2008.
    .. [2] Y. Shen et al., How powerful is graph convolution for recommendation?, CIKM 2021.
    .. [3] H. Steck, Autoencoders that don't overfit towards the identity, NeurIPS 2020.
    """

    n_components: int | None = None
    like: float | None = None
    other: float = 0.6
    unobserved: float | None = None
    ridge: float | None = None
    blend: bool = True
    max_iter: int = 15
    tol: float = 1e-3

    def check(self) -> None:
        """Raise an error for parameters that cannot be used."""
        check_positive("max_iter", self.max_iter, integer=True)
        if self.n_components is not None:
            check_positive("n_components", self.n_components, integer=True)
        for name in ("unobserved", "ridge"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        for name in ("other", "tol"):
            check_positive(name, getattr(self, name), zero=True)
        check_bool("blend", self.blend)
        if self.like is not None and not np.isfinite(self.like):
            msg = f"like: must be a finite number, got {self.like!r}"
            raise ValueError(msg)

    def threshold(self, levels: FloatArray) -> float:
        """The smallest rating that is a like."""
        if self.like is not None:
            return float(self.like)
        return float(levels[0] + 0.75 * (levels[-1] - levels[0]))
