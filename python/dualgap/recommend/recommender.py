"""Recommendation by ordinal regression on multi-output factorization machines."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dualgap._estimator import Callback, History, progress
from dualgap._npz import refused_as
from dualgap._validation import FloatArray, check_positive, resolve_seed, resolve_threads
from dualgap.metrics import ndcg_at_k, rmse
from dualgap.recommend._conditional_gradient import MachineOptions, fit_machine
from dualgap.recommend._factors import Blocks, Task, expected_level, level_probabilities
from dualgap.recommend._file import State, read_state, write_state
from dualgap.recommend._ratings import (
    FeaturesLike,
    Indexed,
    RatingsLike,
    Sides,
    codes,
    find_levels,
    history_rows,
    list_ids,
    read_features,
    read_ids,
    read_ratings,
    rows_for,
    unique_ids,
    unit_rows,
)
from dualgap.recommend._variational import VariationalOptions, fit_variational

__all__ = ["OrdinalRecommender"]

_METHODS = ("variational", "conditional-gradient")
_REDUCTIONS = ("mcrank", "regression")
_REFITS = ("full", "output")
_HISTORY = (False, True, "users")


class OrdinalRecommender(BaseEstimator):  # type: ignore[misc]
    """Predict ratings and recommend items with a multi-output factorization machine.

    Ratings are reduced to one binary output per threshold between two levels, all on a shared
    basis (ordinal McRank; Blondel et al., NIPS 2017, section 6.5). Output c is the log-odds of a
    rating of at most level c:

    ``o_c = b_c + l_uc + l_ic + sum_r U_rc p_ur q_ir``.

    The expected rating is that of the level probabilities. For the latter, the probabilities of a
    rating of at most each level are made monotone by isotonic regression, weighted by the gaps
    between the levels, which does not change the expectation.

    Parameters
    ----------
    n_components : int, default=8
        Number of basis vectors (at most; superfluous ones shrink to zero).
    reduction : {"mcrank", "regression"}, default="mcrank"
        One output per threshold, or a single output with squared loss (for comparison).
    method : {"variational", "conditional-gradient"}, default="variational"
        How the machine is fitted. "variational" gives each user and item a Gaussian with a learned
        prior and keeps the means: the best predictions, no certificate. "conditional-gradient"
        grows the basis one vector at a time, with the duality gap in ``history_``.
    n_models : int, default=3
        Models from different random starts whose expected ratings are averaged ("variational"
        only).
    n_sweeps : int, default=15
        Sweeps over all users and items ("variational" only).
    tempering : float, default=1.0
        Weight of the data against the prior ("variational" only). Below 1 the model is smoother.
        The thresholds of one rating are not independent evidence: their terms are further weighted
        from 0.6 (lowest) to 1 (highest).
    popularity : bool, default=True
        Let the prior of a user or item depend on its number of ratings ("variational" only).
    history_features : {False, True, "users"}, default=False
        Use the set of items that a user has rated as features of the user, and the set of users who
        rated an item as features of the item; "users" for the former alone.
    feature_ridge : float, default=2.0
        Ridge on the weights of the features, in units of the prior ("variational" only).
    penalty : {"l1/l2", "l1/linf", "l1"}, default="l1/l2"
        Norm of the output layer that `radius` bounds.
    radius : float, optional
        Bound on the norm of the output layer, for basis vectors of unit length. None means no bound
        for "variational", and 20000 for "conditional-gradient".
    refit : {"full", "output"}, default="full"
        What is refitted after each new basis vector ("conditional-gradient" only).
    alpha : float, default=3.0
        Ridge on the linear weights ("conditional-gradient" only).
    tol : float, default=1e-4
        Relative duality gap to stop at ("conditional-gradient" only).
    levels : sequence of float, optional
        All possible ratings; by default those that occur.
    user_column, item_column, rating_column : str
        Names of the columns when ratings come as a DataFrame.
    random_state : int, RandomState or None, default=None
        Seed.
    n_jobs : int, optional
        Number of threads; None and -1 mean all cores. The model does not depend on it.
    verbose : int, default=0
        Print a line per sweep on stderr.
    callback : callable, optional
        Called as ``callback(epoch, seconds, objective, bound)``; a true value stops the fit.

    Attributes
    ----------
    user_ids_, item_ids_ : pandas.Index
        Known ids.
    levels_ : ndarray
        Rating levels in increasing order.
    n_components_ : int
        Largest number of bases in use among the models.
    objective_ : float
        Final objective of the (last) model.
    duality_gap_ : float
        Its certificate; infinite for "variational", whose problem is not convex.
    history_ : list of dict of ndarray
        Per model and epoch: epoch, seconds, primal, dual, gap (NaN where no bound is
        known); for "conditional-gradient" also n_components, validation_loss and validation_score.

    Notes
    -----
    An unknown user or item is treated as an average one: what the model knows of the other side
    decides.
    """

    history_: list[History]
    _models: list[Blocks]

    def __init__(
        self,
        n_components: int = 8,
        *,
        reduction: str = "mcrank",
        method: str = "variational",
        n_models: int = 3,
        n_sweeps: int = 15,
        tempering: float = 1.0,
        popularity: bool = True,
        history_features: bool | str = False,
        feature_ridge: float = 2.0,
        penalty: str = "l1/l2",
        radius: float | None = None,
        refit: str = "full",
        alpha: float = 3.0,
        tol: float = 1e-4,
        levels: Sequence[float] | None = None,
        user_column: str = "user",
        item_column: str = "item",
        rating_column: str = "rating",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int | bool = 0,
        callback: Callback | None = None,
    ) -> None:
        self.n_components = n_components
        self.reduction = reduction
        self.method = method
        self.n_models = n_models
        self.n_sweeps = n_sweeps
        self.tempering = tempering
        self.popularity = popularity
        self.history_features = history_features
        self.feature_ridge = feature_ridge
        self.penalty = penalty
        self.radius = radius
        self.refit = refit
        self.alpha = alpha
        self.tol = tol
        self.levels = levels
        self.user_column = user_column
        self.item_column = item_column
        self.rating_column = rating_column
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    def fit(
        self,
        ratings: RatingsLike,
        *,
        user_features: FeaturesLike | None = None,
        item_features: FeaturesLike | None = None,
        validation: RatingsLike | None = None,
    ) -> Self:
        """Fit to ratings.

        Parameters
        ----------
        ratings : DataFrame, tuple (users, items, values) or sparse matrix (users by items)
            Training ratings; ids of any hashable type.
        user_features, item_features : DataFrame indexed by id, or sparse matrix, optional
            Further inputs. Numbers are standardised, other columns become one input per value, and
            each row is scaled to unit length. Row r of a sparse matrix belongs to the id r. Ids
            without ratings are known by their features.
        validation : as `ratings`, optional
            Ratings on which the number of bases is chosen ("conditional-gradient" only).

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For ratings or parameters that cannot be used; the message names the argument.
        """
        self._check_parameters()
        triples = read_ratings(ratings, self._columns())
        user_ids, user_matrix = read_features(user_features, "user_features")
        item_ids, item_matrix = read_features(item_features, "item_features")
        self.user_ids_ = unique_ids(triples.users, user_ids)
        self.item_ids_ = unique_ids(triples.items, item_ids)
        users = self.user_ids_.get_indexer(triples.users)
        items = self.item_ids_.get_indexer(triples.items)
        self.levels_ = find_levels(triples.values, self.levels, self.reduction == "mcrank")
        shape = (len(self.user_ids_), len(self.item_ids_))
        self._seen = history_rows(users, items, shape)
        user_rows = (
            []
            if user_matrix is None or user_ids is None
            else [rows_for(self.user_ids_, user_ids, user_matrix)]
        )
        item_rows = (
            []
            if item_matrix is None or item_ids is None
            else [rows_for(self.item_ids_, item_ids, item_matrix)]
        )
        if self.history_features:
            user_rows.append(self._seen)
        if self.history_features is True:
            item_rows.append(sp.csr_array(self._seen.T))
        sides = Sides(shape, (unit_rows(user_rows), unit_rows(item_rows)))
        rated = Indexed(users, items, triples.values)
        if self.method == "variational":
            if validation is not None:
                msg = 'validation: only method="conditional-gradient" chooses its size on it'
                raise ValueError(msg)
            fitted = fit_variational(self._variational(), self._task(), rated, sides)
        else:
            held_out = None
            if validation is not None:
                triples = read_ratings(validation, self._columns(), name="validation")
                held_out = Indexed(
                    codes(self.user_ids_, triples.users),
                    codes(self.item_ids_, triples.items),
                    triples.values,
                )
            fitted = fit_machine(self._machine(), self._task(), rated, sides, held_out)
        self._models, self.history_ = fitted.models, fitted.history
        self.objective_, self.duality_gap_ = fitted.objective, fitted.gap
        self.n_components_ = max(model.n_bases() for model in self._models)
        return self

    def predict(
        self, users: Hashable | Iterable[Hashable], items: Hashable | Iterable[Hashable]
    ) -> FloatArray:
        """Expected ratings of (user, item) pairs.

        Parameters
        ----------
        users, items : id or iterable of ids
            Equally many, or one of them a single id. Unknown ids are allowed.

        Returns
        -------
        ndarray of shape (n_pairs,), within the range of the levels
        """
        return self._predict(*self._pairs(users, items))

    def predict_proba(
        self, users: Hashable | Iterable[Hashable], items: Hashable | Iterable[Hashable]
    ) -> FloatArray:
        """Probability of each level of ``levels_`` for (user, item) pairs.

        Returns
        -------
        ndarray of shape (n_pairs, n_levels)

        Raises
        ------
        AttributeError
            For ``reduction="regression"``, which has no level probabilities.
        """
        check_is_fitted(self)
        if self.reduction != "mcrank":
            msg = 'predict_proba: reduction="regression" gives no level probabilities; use "mcrank"'
            raise AttributeError(msg)
        pairs = self._pairs(users, items)
        return _mean(
            level_probabilities(model.pairs(*pairs), self.levels_) for model in self._models
        )

    def recommend(
        self,
        users: Hashable | Iterable[Hashable],
        n: int = 10,
        *,
        exclude_seen: bool = True,
    ) -> pd.DataFrame:
        """Items with the highest expected rating for each user.

        Parameters
        ----------
        users : id or iterable of ids
            Unknown users get the items that the model expects an average user to like.
        n : int, default=10
            Items per user.
        exclude_seen : bool, default=True
            Leave out what the user has rated in `fit`.

        Returns
        -------
        DataFrame
            Columns user, rank (from 1), item, score; fewer rows for a user who has rated almost
            everything. Equal scores keep the order of ``item_ids_``.
        """
        check_is_fitted(self)
        check_positive("n", n, integer=True)
        names = read_ids(list_ids(users), "user")
        positions = codes(self.user_ids_, names)
        n = min(n, len(self.item_ids_))
        # Enough users at a time to keep the scores of all items within about 100 MB.
        batch = max(1, 12_000_000 // (len(self.item_ids_) * max(1, len(self.levels_) - 1)))
        tables = []
        for start in range(0, len(positions), batch):
            chosen = positions[start : start + batch]
            scores = self._scores(chosen)
            if exclude_seen:
                known = np.flatnonzero(chosen < len(self.user_ids_))
                seen = self._seen[chosen[known]].tocoo()
                scores[known[seen.row], seen.col] = -np.inf
            top = _top(scores, n)
            ranked = np.take_along_axis(scores, top, axis=1)
            keep = np.isfinite(ranked)
            row, column = np.nonzero(keep)
            tables.append(
                pd.DataFrame(
                    {
                        "user": names[start + row],
                        "rank": column + 1,
                        "item": self.item_ids_[top[keep]],
                        "score": ranked[keep],
                    }
                )
            )
        if not tables:
            return pd.DataFrame({"user": [], "rank": [], "item": [], "score": []})
        return pd.concat(tables, ignore_index=True)

    def similar_items(self, items: Hashable | Iterable[Hashable], n: int = 10) -> pd.DataFrame:
        """Items that the same users like: largest cosine between the items' factors.

        Parameters
        ----------
        items : id or iterable of ids
            Known items.
        n : int, default=10
            Neighbours per item.

        Returns
        -------
        DataFrame
            Columns item, rank (from 1), similar, score (cosine).

        Raises
        ------
        KeyError
            For an unknown item, of which no factors are known.
        """
        check_is_fitted(self)
        check_positive("n", n, integer=True)
        names = read_ids(list_ids(items), "item")
        positions = self.item_ids_.get_indexer(names)
        if (positions < 0).any():
            raise KeyError(f"items: {names[positions < 0].tolist()[0]!r} was not in the ratings")
        vectors = np.hstack([model.item_vectors() for model in self._models])
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.where(lengths > 0.0, lengths, 1.0)
        scores = vectors[positions] @ vectors.T
        scores[np.arange(len(positions)), positions] = -np.inf
        n = min(n, len(self.item_ids_) - 1)
        top = _top(scores, n)
        return pd.DataFrame(
            {
                "item": np.repeat(names, n),
                "rank": np.tile(np.arange(1, n + 1), len(names)),
                "similar": self.item_ids_[top.ravel()],
                "score": np.take_along_axis(scores, top, axis=1).ravel(),
            }
        )

    def evaluate(self, test: RatingsLike, *, k: Sequence[int] = (1, 5, 10)) -> dict[str, float]:
        """RMSE and mean nDCG@k per user on held-out ratings (gain 2^rating - 1, ties averaged).

        Returns
        -------
        dict
            ``{"rmse": ..., "ndcg@1": ..., ...}``
        """
        check_is_fitted(self)
        triples = read_ratings(test, self._columns(), name="test")
        users, items = codes(self.user_ids_, triples.users), codes(self.item_ids_, triples.items)
        predicted = self._predict(users, items)
        result = {"rmse": rmse(triples.values, predicted)}
        groups = pd.factorize(triples.users)[0]
        for depth in k:
            result[f"ndcg@{depth}"] = ndcg_at_k(triples.values, predicted, depth, groups=groups)
        return result

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file of plain arrays (npz) that executes nothing when loaded.

        Raises
        ------
        TypeError
            If ids are neither all strings nor all numbers.
        """
        check_is_fitted(self)
        parameters = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in ("callback", "random_state")
        }
        if self.levels is not None:
            parameters["levels"] = np.asarray(self.levels, dtype=float).tolist()
        state = State(
            parameters=parameters,
            user_ids=self.user_ids_,
            item_ids=self.item_ids_,
            levels=self.levels_,
            objective=self.objective_,
            gap=self.duality_gap_,
            n_components=self.n_components_,
            seen=self._seen,
            models=self._models,
            history=self.history_,
        )
        write_state(path, state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model written by `save`; its predictions are the same bit for bit.

        Raises
        ------
        ValueError
            If the file is not such a model.
        """
        with refused_as(path, "a saved OrdinalRecommender"):
            state = read_state(path)
            model = cls(**state.parameters)
            model._check_parameters()
            state.check(len(state.levels) - 1 if model.reduction == "mcrank" else 1)
        model.user_ids_, model.item_ids_ = state.user_ids, state.item_ids
        model.levels_, model._seen = state.levels, state.seen
        model.objective_, model.duality_gap_ = state.objective, state.gap
        model.n_components_ = state.n_components
        model._models, model.history_ = state.models, state.history
        return model

    def _task(self) -> Task:
        return Task(
            reduction=self.reduction,
            levels=self.levels_,
            n_components=int(self.n_components),
            penalty=self.penalty,
            radius=self.radius,
            seed=resolve_seed(self.random_state),
            n_threads=resolve_threads(self.n_jobs),
            callback=progress(self.verbose, self.callback),
        )

    def _variational(self) -> VariationalOptions:
        return VariationalOptions(
            n_models=int(self.n_models),
            n_sweeps=int(self.n_sweeps),
            tempering=float(self.tempering),
            popularity=bool(self.popularity),
            feature_ridge=float(self.feature_ridge),
        )

    def _machine(self) -> MachineOptions:
        return MachineOptions(self.refit, float(self.alpha), float(self.tol))

    def _columns(self) -> tuple[str, str, str]:
        return self.user_column, self.item_column, self.rating_column

    def _check_parameters(self) -> None:
        for name in ("n_components", "n_models", "n_sweeps"):
            check_positive(name, getattr(self, name), integer=True)
        for name in ("tempering", "feature_ridge", "alpha"):
            check_positive(name, getattr(self, name))
        check_positive("tol", self.tol, zero=True)
        if self.radius is not None:
            check_positive("radius", self.radius)
        for name, known in (
            ("method", _METHODS),
            ("reduction", _REDUCTIONS),
            ("refit", _REFITS),
            ("history_features", _HISTORY),
        ):
            if getattr(self, name) not in known:
                options = ", ".join(map(repr, known))
                msg = f"{name}: must be one of {options}, got {getattr(self, name)!r}"
                raise ValueError(msg)

    def _pairs(
        self, users: Hashable | Iterable[Hashable], items: Hashable | Iterable[Hashable]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        check_is_fitted(self)
        u = codes(self.user_ids_, read_ids(list_ids(users), "user"))
        i = codes(self.item_ids_, read_ids(list_ids(items), "item"))
        if len(u) != len(i) and 1 not in (len(u), len(i)):
            msg = (
                "users, items: must be equally many (or one of them a single id), "
                f"got {len(u)} and {len(i)}"
            )
            raise ValueError(msg)
        u, i = np.broadcast_arrays(u, i)
        return u, i

    def _expected(self, outputs: FloatArray) -> FloatArray:
        if self.reduction == "mcrank":
            return expected_level(outputs, self.levels_)
        return np.clip(outputs[..., 0], self.levels_[0], self.levels_[-1])

    def _predict(self, users: NDArray[np.intp], items: NDArray[np.intp]) -> FloatArray:
        check_is_fitted(self)
        return _mean(self._expected(model.pairs(users, items)) for model in self._models)

    def _scores(self, users: NDArray[np.intp]) -> FloatArray:
        return _mean(self._expected(model.all_items(users)) for model in self._models)


def _mean(arrays: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(np.mean(list(arrays), axis=0))


def _top(scores: FloatArray, n: int) -> NDArray[np.intp]:
    """Columns of the `n` largest scores of each row, best first, ties in column order."""
    if n >= scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")[:, :n]
    threshold = -np.partition(-scores, n - 1, axis=1)[:, n - 1]
    top = np.empty((len(scores), n), dtype=np.intp)
    for row, (values, least) in enumerate(zip(scores, threshold, strict=True)):
        candidates = np.flatnonzero(values >= least)
        top[row] = candidates[np.argsort(-values[candidates], kind="stable")[:n]]
    return top
