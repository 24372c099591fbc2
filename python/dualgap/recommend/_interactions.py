"""Settings of click models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator

from dualgap._estimator import storable
from dualgap._validation import FloatArray, check_bool, check_positive

__all__ = ["Interactions"]


# Not an estimator, but scikit-learn can read, set, clone and search its parameters.
@storable
@dataclass(kw_only=True, repr=False)
class Interactions(BaseEstimator):  # type: ignore[misc]
    """Model of the items that users choose, learned from clicks or from the likes among ratings.

    Three scorers rank the whole catalogue (``rank_by="like"``): factors fitted by least squares
    over all pairs of users and items [1]_, the graph of items that the same users clicked [2]_, and
    a regression of each item on all other items [3]_. The score is a weighted sum of the three
    scorers' scores, each divided by its standard deviation over the catalogue. The weights, the
    ridge of the regression, and the preference of the graph for popular items [4]_ are chosen on
    held-out clicks of a sample of the users.

    The target is 1 for a rating that is a like, `other_target` for any other rating, and 0 for
    every pair without a rating, which has the weight `unobserved_weight`.

    Parameters
    ----------
    n_components : int, optional
        Length of the vectors of users and items. By default it grows with the number of users or
        items, whichever is smaller, from 64 to 192.
    like_threshold : float, optional
        Smallest rating that is a like. None means that likes are the ratings in the upper quarter
        of the range of levels: 4 and 5 for levels from 1 to 5. With ``task="clicks"``, None means
        that values are counts, not ratings.
    other_target : float, default=0.6
        Target of ratings below `like_threshold`: less than a like, but more than a pair without a
        rating, because users rate items that interest them.
    unobserved_weight : float, optional
        Weight of a pair without a rating, relative to a pair with one. By default three times the
        share of pairs that have a rating, but at most 0.5.
    ridge : float, optional
        Ridge on the vectors, in units of the square root of the total weight of a user's or item's
        pairs. By default 0.1 or 0.3, chosen on held-out clicks; without `blend` it is 0.3.
    blend : bool, default=True
        Whether to add the item-item models. Without them only the factors rank, and the fit takes a
        fraction of the time.
    max_iter : int, default=15
        Maximum number of sweeps over users and items.
    tol : float, default=1e-3
        The fit ends when a sweep lowers the objective by less than this fraction.

    References
    ----------
    .. [1] S. Rendle, W. Krichene, L. Zhang and Y. Koren, Revisiting the performance of iALS on item
       recommendation benchmarks, RecSys 2022; Y. Hu, Y. Koren and C. Volinsky, Collaborative
       filtering for implicit feedback datasets, ICDM 2008.
    .. [2] Y. Shen et al., How powerful is graph convolution for recommendation?, CIKM 2021.
    .. [3] H. Steck, Autoencoders that don't overfit towards the identity, NeurIPS 2020.
    .. [4] H.-M. Fu, P. Poirson, K. S. Lee and C. Wang, Revisiting neighborhood-based link
       prediction for collaborative filtering, WWW 2022 companion.
    """

    n_components: int | None = None
    like_threshold: float | None = None
    other_target: float = 0.6
    unobserved_weight: float | None = None
    ridge: float | None = None
    blend: bool = True
    max_iter: int = 15
    tol: float = 1e-3

    def check(self) -> None:
        """Raise an error for invalid parameters."""
        check_positive("max_iter", self.max_iter, integer=True)
        if self.n_components is not None:
            check_positive("n_components", self.n_components, integer=True)
        for name in ("unobserved_weight", "ridge"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        for name in ("other_target", "tol"):
            check_positive(name, getattr(self, name), zero=True)
        check_bool("blend", self.blend)
        if self.like_threshold is not None and not np.isfinite(self.like_threshold):
            msg = f"like_threshold: must be a finite number, got {self.like_threshold!r}"
            raise ValueError(msg)

    def threshold(self, levels: FloatArray) -> float:
        """Return the smallest rating that is a like."""
        if self.like_threshold is not None:
            return float(self.like_threshold)
        return float(levels[0] + 0.75 * (levels[-1] - levels[0]))
