"""What a fitted recommender serves: predictions, recommendations, new users and items, scores."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap._choices import Ranking, check_choice
from dualgap._validation import check_positive, resolve_threads
from dualgap.recommend._evaluation import catalogue_metrics, rating_metrics
from dualgap.recommend._fold_in import folded_blocks, folded_interactions, new_ids, with_history
from dualgap.recommend._predicting import Ids, PredictingRecommender
from dualgap.recommend._ranking import (
    allowed_items,
    best_items,
    like_parts,
    nearest,
    ranked_table,
    rating_parts,
)
from dualgap.recommend._ratings import (
    Indexed,
    RatingsLike,
    Unknown,
    codes,
    known_codes,
    last_of_each_pair,
    list_ids,
    read_ids,
    read_ratings,
)

__all__ = ["ServingRecommender"]


@dataclass(kw_only=True, eq=False, repr=False)
class ServingRecommender(PredictingRecommender):
    """What a recommender does once it is fitted."""

    def recommend(
        self,
        users: Ids | None = None,
        n: int = 10,
        *,
        ratings: RatingsLike | None = None,
        rank_by: Ranking | None = None,
        exclude_seen: bool = True,
        items: Iterable[Hashable] | None = None,
        exclude: Iterable[Hashable] | None = None,
        mask: ArrayLike | None = None,
        unknown: Unknown = "warn",
    ) -> pd.DataFrame:
        """The best items for each user, of the whole catalogue.

        Parameters
        ----------
        users : id or iterable of ids, optional
            Whom to recommend to; by default all users of `ratings`.
        n : int, default=10
            Items per user.
        ratings : as for `fit`, optional
            Ratings of users who are new, or have rated more since: they are fitted to these as by
            `fold_in`, for this call alone.
        rank_by : {"like", "rating"}, optional
            "like": what the user is most likely to take up and like, by the interactions; "rating":
            the highest expected rating, were the user to rate it, which favours items that few
            know. The default is "rating", and "like" for ``reduction="interactions"``.
        exclude_seen : bool, default=True
            Leave out what the user has rated.
        items, exclude : iterable of ids, optional
            The only items that may be recommended, and items that may not.
        mask : array-like of bool, shape (n_items,), optional
            Which of ``item_ids_`` may be recommended.
        unknown : {"warn", "ignore"}, default="warn"
            As for `predict`.

        Returns
        -------
        DataFrame
            Columns user, rank (from 1), item, score (in single precision); fewer rows for a user to
            whom fewer may be recommended. Equal scores keep the order of ``item_ids_``.
        """
        check_is_fitted(self)
        check_positive("n", n, integer=True)
        if ratings is not None:
            served = self.fold_in(ratings)
            if users is None:
                table = read_ratings(ratings, self._columns())
                users = table.users.unique()
            return served.recommend(
                users,
                n,
                rank_by=rank_by,
                exclude_seen=exclude_seen,
                items=items,
                exclude=exclude,
                mask=mask,
                unknown=unknown,
            )
        if users is None:
            msg = "users: say whom to recommend to (or pass ratings)"
            raise ValueError(msg)
        names = read_ids(list_ids(users), "user")
        positions = known_codes(self.user_ids_, names, "user", unknown)
        best = self._best(
            positions,
            min(int(n), len(self.item_ids_)),
            self._ranking(rank_by),
            allowed_items(self.item_ids_, items, exclude, mask),
            exclude_seen=exclude_seen,
        )
        lowest = 0.0 if self._ranking(rank_by) == "like" else self._lowest()
        return ranked_table(names, self.item_ids_, best, lowest)

    def similar_items(self, items: Ids, n: int = 10) -> pd.DataFrame:
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
        n = min(n, len(self.item_ids_) - 1)
        vectors = [model.item_vectors() for model in self._models]
        if not vectors and self._interactions is not None:
            vectors = [self._interactions.items[:-1]]
        top, scores = nearest(np.hstack(vectors), positions, n)
        return pd.DataFrame(
            {
                "item": np.repeat(names, n),
                "rank": np.tile(np.arange(1, n + 1), len(names)),
                "similar": self.item_ids_[top.ravel()],
                "score": scores.ravel(),
            }
        )

    def fold_in(self, ratings: RatingsLike, *, side: Literal["users", "items"] = "users") -> Self:
        """A recommender that also knows the users of these ratings, without a refit.

        Each user is fitted to the ratings given, all else staying as it is; that takes well under a
        millisecond. A user who is known already is fitted anew: pass all ratings of that user, not
        the latest ones alone. Times of ratings are not used.

        Parameters
        ----------
        ratings : as for `fit`
            Ratings of known items; others are left out, with a warning.
        side : {"users", "items"}, default="users"
            "items" for the same with users and items exchanged.

        Returns
        -------
        OrdinalRecommender
            A copy; this recommender does not change.

        Raises
        ------
        ValueError
            If the method cannot (it must be "variational"), or all ratings are of unknown items.
        """
        check_is_fitted(self)
        check_choice("side", side, "users", "items")
        if self._models and not self._learned:
            msg = 'fold_in: only method="variational" fits new users without a refit'
            raise ValueError(msg)
        of_users = side == "users"
        tables = (self.user_ids_, self.item_ids_) if of_users else (self.item_ids_, self.user_ids_)
        levels = self.levels_ if self.reduction == "mcrank" else None
        triples = last_of_each_pair(read_ratings(ratings, self._columns()))
        own, other, triples = new_ids(triples, tables[1], levels, of_users=of_users)
        names = own.unique()
        target = codes(tables[0], names)
        fresh = target == len(tables[0])
        target[fresh] = len(tables[0]) + np.arange(fresh.sum())
        values = np.searchsorted(self.levels_, triples.values).astype(np.float64)
        folded = Indexed(
            names.get_indexer(own), other, values if self.reduction == "mcrank" else triples.values
        )
        new = copy.copy(self)
        seen = self._seen if of_users else sp.csr_array(self._seen.T)
        history = self.history_features is True or (of_users and self.history_features == "users")
        counts = np.bincount(seen.indices, minlength=len(tables[1]))
        new._models = folded_blocks(
            self._models,
            self._learned,
            folded,
            target,
            counts,
            of_users=of_users,
            history=history,
            n_jobs=self.n_jobs,
        )
        if self._interactions is not None:
            new._interactions = folded_interactions(
                self._interaction_settings(),
                self._interactions,
                Indexed(folded.users, other, triples.values),
                target,
                of_users=of_users,
                n_jobs=self.n_jobs,
            )
        if self._times is not None:
            new._times = self._times.without(target, of_users=of_users)
        ids = tables[0].append(names[fresh])
        rows = with_history(seen, target[folded.users], other, len(ids))
        new._seen = rows if of_users else sp.csr_array(rows.T)
        setattr(new, "user_ids_" if of_users else "item_ids_", ids)
        return new

    def evaluate(
        self,
        test: RatingsLike,
        *,
        timestamps: ArrayLike | None = None,
        k: Sequence[int] = (1, 5, 10),
        catalogue: bool = False,
        rank_by: Ranking | None = None,
        unknown: Unknown = "warn",
    ) -> dict[str, float]:
        """How good predictions and recommendations are on held-out ratings.

        Parameters
        ----------
        test : as for `fit`
            Ratings that had no part in the fit. A model with `time_features` uses their times.
        timestamps : array-like of shape (n_ratings,), optional
            Their times where they are not a column.
        k : sequence of int, default=(1, 5, 10)
            Numbers of ranks.
        catalogue : bool, default=False
            Also rank the whole catalogue, without what each user rated in `fit`, and look for the
            test ratings of at least ``like_``; users without any are left out.
        rank_by : {"like", "rating"}, optional
            How `catalogue` ranks; as for `recommend`.
        unknown : {"warn", "ignore"}, default="warn"
            As for `predict`.

        Returns
        -------
        dict
            ``{"rmse": ..., "ndcg@1": ..., ...}``: RMSE, and the mean nDCG@k per user among the test
            ratings alone (gain 2^rating - 1, ties averaged); with `catalogue` also "recall@k",
            "catalogue_ndcg@k", "map@k" and "coverage@k" (`dualgap.metrics`).
        """
        check_is_fitted(self)
        triples = read_ratings(test, self._columns(), name="test", timestamps=timestamps)
        users = known_codes(self.user_ids_, triples.users, "user", unknown)
        items = known_codes(self.item_ids_, triples.items, "item", unknown)
        result = {}
        if self.reduction != "interactions":
            times = triples.times if self._times is not None else None
            result = rating_metrics(triples, self._predict(self._timed(users, items, times)), k)
        if catalogue or self.reduction == "interactions":
            # An id that is unknown cannot be found: it counts as missed.
            liked = triples.values >= self.like_
            who, names = pd.factorize(triples.users[liked])
            best = self._best(
                codes(self.user_ids_, names),
                min(max(k), len(self.item_ids_)),
                self._ranking(rank_by),
                np.ones(len(self.item_ids_), dtype=bool),
                exclude_seen=True,
            )
            result |= catalogue_metrics(best[0], (who, items[liked]), len(self.item_ids_), k)
        return result

    def score(self, ratings: RatingsLike, y: object = None) -> float:
        """The larger the better, as scikit-learn's searches want it: minus the RMSE.

        For ``reduction="interactions"`` recall@10 over the catalogue.

        Parameters
        ----------
        ratings : as for `fit`
            Ratings that had no part in the fit.
        y : ignored
            For scikit-learn's interfaces.

        Returns
        -------
        float
        """
        found = self.evaluate(ratings, k=(10,), unknown="ignore")
        return found["recall@10"] if self.reduction == "interactions" else -found["rmse"]

    # --- What these share ---

    def _ranking(self, rank_by: Ranking | None) -> Ranking:
        if rank_by is None:
            return "like" if self.reduction == "interactions" else "rating"
        check_choice("rank_by", rank_by, Ranking)
        if rank_by == "rating" and self.reduction == "interactions":
            msg = 'rank_by: reduction="interactions" predicts no ratings; use "like"'
            raise ValueError(msg)
        if rank_by == "like" and self._interactions is None:
            msg = 'rank_by: "like" needs interactions=True (or Interactions(...)) in the fit'
            raise ValueError(msg)
        return rank_by

    def _lowest(self) -> float:
        return float(self.levels_[0]) if self.reduction == "mcrank" else 0.0

    def _best(
        self,
        positions: NDArray[np.intp],
        n: int,
        ranking: Ranking,
        allowed: NDArray[np.bool_],
        *,
        exclude_seen: bool,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Positions and scores of the best items."""

        def parts(chosen: NDArray[np.intp]) -> list[dict[str, Any]]:
            if ranking == "like":
                assert self._interactions is not None
                return like_parts(self._interactions, chosen)
            gaps = np.diff(self.levels_).tolist() if self.reduction == "mcrank" else None
            return rating_parts(self._models, gaps, chosen)

        found, scores = best_items(
            parts,
            positions,
            self._seen,
            allowed,
            n,
            exclude_seen=exclude_seen,
            n_threads=resolve_threads(self.n_jobs),
        )
        if self.reduction == "regression" and ranking == "rating":
            scores = np.clip(scores, self.levels_[0], self.levels_[-1])
        return found, scores
