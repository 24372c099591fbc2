"""The methods of a fitted recommender: predictions, rankings, new users and items, scores."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from dualgap._choices import Ranking, check_choice
from dualgap._validation import FloatArray, check_positive, resolve_threads
from dualgap.recommend._base import Ids, RecommenderParts
from dualgap.recommend._click_training import fold_in_clicks
from dualgap.recommend._features import FeaturesLike, FeatureTable, new_features
from dualgap.recommend._ids import check_new, read_id_list
from dualgap.recommend._ranking import (
    Candidates,
    Neighbours,
    allowed_items,
    check_confidence,
    check_ranks,
    diversified,
    evaluate_catalogue,
    excluded_items,
    ranked_table,
    rating_metrics,
    warn_of_seen,
)
from dualgap.recommend._ratings import RatingsLike, RatingTable, Unknown, read_ratings
from dualgap.recommend._training import NewRatings, Side, distinct

__all__ = ["FittedRecommender"]

# A diverse list of n items is chosen from max(_CANDIDATES[0], _CANDIDATES[1] * n) candidates.
_CANDIDATES = (50, 5)


class FittedRecommender(RecommenderParts):
    """A recommender with fitted models."""

    def predict(
        self,
        users: Ids,
        items: Ids,
        *,
        timestamps: ArrayLike | None = None,
        unknown: Unknown = "warn",
    ) -> FloatArray:
        """Predict ratings of (user, item) pairs.

        Parameters
        ----------
        users, items : id or iterable of ids
            Iterables of equal length. Either of them may be a single id instead.
        timestamps : array-like of shape (n_pairs,) or a single time, optional
            Times of the ratings, for a model with `time_features`: seconds since 1970, or dates.
            Without them, predictions do not depend on time.
        unknown : {"warn", "ignore"}, default="warn"
            Treatment of ids that were not in the ratings. They are predicted like an average user
            or item, except that an unknown item scores 0 for ``task="clicks"``; "warn" reports
            their number and raises an error if all are unknown.

        Returns
        -------
        ndarray of shape (n_pairs,)
            Ratings within the range of the levels. For ``task="clicks"``, scores that rank the
            items of one user: a larger score means that the user is more likely to choose the item.

        Raises
        ------
        ValueError
            If all users or all items are unknown, or the model has no time features.
        TypeError
            If ids are strings but the ids of the ratings are numbers, or the other way around.
        """
        pairs = self._pairs(users, items, timestamps, unknown)
        return self._model(self._default_ranking()).predict(pairs)

    def predict_proba(
        self,
        users: Ids,
        items: Ids,
        *,
        timestamps: ArrayLike | None = None,
        unknown: Unknown = "warn",
    ) -> FloatArray:
        """Predict the probability of each level of ``levels_`` for (user, item) pairs.

        Parameters
        ----------
        users, items, timestamps, unknown
            As for `predict`.

        Returns
        -------
        ndarray of shape (n_pairs, n_levels)

        Raises
        ------
        AttributeError
            If `task` is not "ordinal": other models have no level probabilities.
        """
        self._check_fitted()
        if self.task != "ordinal":
            msg = f'predict_proba: task="{self.task}" gives no level probabilities; use "ordinal"'
            raise AttributeError(msg)
        pairs = self._pairs(users, items, timestamps, unknown)
        assert self._rating_model is not None
        return self._rating_model.predict_proba(pairs)

    def recommend(
        self,
        users: Ids | None = None,
        n: int = 10,
        *,
        ratings: RatingsLike | None = None,
        rank_by: Ranking | None = None,
        exclude_seen: bool = True,
        items: Iterable[Hashable] | None = None,
        exclude: Iterable[Hashable] | Mapping[Hashable, Any] | None = None,
        mask: ArrayLike | None = None,
        diversity: float = 0.0,
        unknown: Unknown = "warn",
    ) -> pd.DataFrame:
        """Return the best items of the whole catalogue for each user.

        Parameters
        ----------
        users : id or iterable of ids, optional
            Users to recommend to; by default all users of `ratings`, or all known users if
            `ratings` is not given.
        n : int, default=10
            Items per user.
        ratings : as for `fit`, optional
            Ratings of new users, or of users who have rated more since the fit. They are used as in
            `fold_in`, for this call only.
        rank_by : {"like", "rating"}, optional
            "like" ranks by how likely the user is to choose and like an item (see `Interactions`).
            "rating" ranks by the expected rating if the user were to rate the item, which favours
            little-known items. The default is "like" for ``task="clicks"``, or if no item that may
            be recommended has ratings, and "rating" otherwise. With "like", items that have neither
            ratings nor features are never recommended.
        exclude_seen : bool, default=True
            Whether to leave out items that the user has rated.
        items, exclude : id or iterable of ids, optional
            `items`: the only items that may be recommended. `exclude`: items that are never
            recommended, or a dictionary ``{user: items}`` of items that are never recommended to
            that user. A warning reports ids that were not in the ratings.
        mask : array-like of bool, shape (n_items,), optional
            Whether each of ``item_ids_`` may be recommended.
        diversity : float, default=0.0
            Weight, from 0 to 1, of dissimilarity. The next item of the list maximises (1 -
            diversity) times its score, scaled from 0 to 1 over the candidates, minus diversity
            times its largest cosine similarity to the items before it [1]_. Candidates are the best
            ``max(50, 5 * n)`` items.
        unknown : {"warn", "ignore"}, default="warn"
            As for `predict`.

        Returns
        -------
        DataFrame
            Columns user, rank (from 1), item, score (in single precision); the user and item
            columns are named `user_column` and `item_column`. A user has fewer than `n` rows if
            fewer items may be recommended. Equal scores keep the order of ``item_ids_``. The table
            belongs to the same library as `ratings`, or as the ratings of the fit if `ratings` is
            not given.

        References
        ----------
        .. [1] J. Carbonell and J. Goldstein, The use of MMR, diversity-based reranking for
           reordering documents and producing summaries, SIGIR 1998.
        """
        self._check_fitted()
        check_positive("n", n, integer=True)
        check_positive("diversity", diversity, zero=True)
        if diversity > 1.0:
            msg = f"diversity: must be from 0 to 1, got {diversity!r}"
            raise ValueError(msg)
        allowed = allowed_items(self.item_ids_, items, exclude, mask)
        if rank_by is None and self._click_model is not None and not allowed.all():
            rank_by = None if allowed[self._seen.columns].any() else "like"
        ranking = self._ranking(rank_by)
        model = self
        if ratings is not None:
            table = self._one_of_each_pair(read_ratings(ratings, self._columns()))
            rated = distinct(table.users)[1]
            places = self._catalogue.places[0].find(rated)
            check_new(self.user_ids_, rated[places == len(self.user_ids_)], "ratings (users)")
            names = rated if users is None else read_id_list(users, "users")
            # If all wanted users are in `ratings`, avoid copies that grow with the number of known
            # users.
            light = names is rated or (rated.get_indexer(names) >= 0).all()
            clicks = "like" in (ranking, diversity > 0.0 and self._similarity())
            model = (self._without_users(clicks=clicks) if light else self)._folded(table)
        catalogue, seen = model._catalogue, model._seen
        if ratings is None:
            names = catalogue.users if users is None else read_id_list(users, "users")
        rows = catalogue.find_users(names, unknown)
        excluded = None
        if isinstance(exclude, Mapping):
            known = self.user_ids_, catalogue.users
            excluded = excluded_items(names, known, catalogue.items, exclude)
        threads = min(resolve_threads(self.n_jobs), max(1, len(rows)))
        candidates = Candidates(allowed, seen if exclude_seen else None, threads, excluded)
        length = int(n) if diversity == 0.0 else max(_CANDIDATES[0], _CANDIDATES[1] * int(n))
        best = model._model(ranking).best_items(rows, min(length, len(catalogue.items)), candidates)
        if diversity > 0.0:
            vectors = model._model(self._similarity()).item_vectors()
            best = diversified(best, vectors, int(n), diversity)
        columns = self.user_column, self.item_column
        return self._in_library(ranked_table(names, catalogue.items, best, columns), ratings)

    def similar_items(
        self, items: Ids, n: int = 10, *, among: Iterable[Hashable] | None = None
    ) -> pd.DataFrame:
        """Return items that the same users like: those whose vectors have the largest cosines.

        The vectors come from clicks, or from ratings if the fit had ``interactions=False``. A
        cosine is multiplied by ``c / (c + 10)`` for each of the two items, where c is its number of
        ratings, so that little-known items do not rank first.

        Parameters
        ----------
        items : id or iterable of ids
            Known items.
        n : int, default=10
            Number of neighbours per item.
        among : iterable of ids, optional
            The only items that may be neighbours.

        Returns
        -------
        DataFrame
            Columns item (named as `item_column`), rank (from 1), similar, score.

        Raises
        ------
        KeyError
            For an unknown item. A known item that has neither ratings nor features has no
            neighbours.
        """
        self._check_fitted()
        allowed = allowed_items(self.item_ids_, among, name="among")
        counts = np.bincount(self._seen.columns, minlength=len(self.item_ids_))
        model = self._model(self._similarity())
        side = Neighbours(self.item_ids_, model.item_vectors(), counts, allowed)
        return self._in_library(
            side.table(read_id_list(items, "items"), n, "items", self.item_column)
        )

    def similar_users(
        self, users: Ids, n: int = 10, *, among: Iterable[Hashable] | None = None
    ) -> pd.DataFrame:
        """Return users who like the same items; see `similar_items`. Requires ``interactions``."""
        allowed = allowed_items(self.user_ids_, among, name="among")
        counts = np.diff(self._seen.offsets)
        side = Neighbours(self.user_ids_, self.user_vectors_, counts, allowed)
        return self._in_library(
            side.table(read_id_list(users, "users"), n, "users", self.user_column)
        )

    def explain(self, user: Hashable, item: Hashable, n: int = 5) -> pd.DataFrame:
        """Return the items of a user that contribute most to the click model's score of an item.

        The click model's score is a sum over the items of the user. The item-item models are
        defined as such sums. The scores of the factors are such sums because a user's vector solves
        a least squares problem [1]_. A user's features are not part of the sum, and a repeated
        click counts once.

        Parameters
        ----------
        user, item : id
            A known user and a known item.
        n : int, default=5
            Number of items to return.

        Returns
        -------
        DataFrame
            Columns item (an item of the user; named as `item_column`), rank (from 1) and
            contribution (to the score), the largest first.

        Raises
        ------
        KeyError
            For an unknown user or item.

        References
        ----------
        .. [1] Y. Hu, Y. Koren and C. Volinsky, Collaborative filtering for implicit feedback
           datasets, ICDM 2008, section 5.
        """
        model = self._clicks()
        check_positive("n", n, integer=True)
        places = []
        sides = (("user", self.user_ids_, user), ("item", self.item_ids_, item))
        for name, known, one in sides:
            place = known.get_indexer(read_id_list(one, name))
            if len(place) != 1 or place[0] < 0:
                raise KeyError(f"{name}: {one!r} was not in the ratings")
            places.append(int(place[0]))
        items, parts = model.contributions(*places)
        order = np.argsort(-parts, kind="stable")[:n]
        columns = {
            self.item_column: self.item_ids_[items[order]],
            "rank": np.arange(1, len(order) + 1),
            "contribution": parts[order],
        }
        return self._in_library(pd.DataFrame(columns))

    @property
    def user_vectors_(self) -> FloatArray:
        """Factors of ``user_ids_`` from clicks; products with ``item_vectors_`` rank items."""
        return self._clicks().users[1:]

    @property
    def item_vectors_(self) -> FloatArray:
        """Factors of ``item_ids_`` from clicks."""
        return self._clicks().items[1:]

    def fold_in(
        self,
        ratings: RatingsLike | None = None,
        *,
        side: Literal["users", "items"] = "users",
        features: FeaturesLike | None = None,
        add: bool = False,
    ) -> Self:
        """Return a recommender that also knows the users of these ratings, without a refit.

        Each user is fitted to the given ratings; the rest of the model does not change. A known
        user is fitted again: pass all ratings and features of that user, not only the latest ones.
        Times of ratings are not used.

        Parameters
        ----------
        ratings : as for `fit`, optional
            Ratings of known items; ratings of unknown items are left out, with a warning.
        side : {"users", "items"}, default="users"
            "items" does the same with users and items exchanged.
        features : DataFrame indexed by id, or sparse matrix, optional
            Features of new users (or items), with the same columns as in the fit. New ids in
            this table need no ratings. Known ids without ratings in `ratings` do not change.
        add : bool, default=False
            Whether to add the ratings to the earlier ratings of known users (or items) instead of
            replacing the earlier ratings; a new rating of the same pair replaces the earlier one.
            Each earlier rating counts with weight 1, each earlier click once.

        Returns
        -------
        OrdinalRecommender
            A copy; this recommender does not change.

        Raises
        ------
        ValueError
            If the method does not support new ids (only "variational" does), if all ratings are of
            unknown items, if `features` is given but the fit had no features of this side, or if
            `add` is set but an earlier version, which did not store the ratings, saved the model.
        """
        self._check_fitted()
        check_choice("side", side, "users", "items")
        column = self.user_column if side == "users" else self.item_column
        described = new_features(features, self._encoders, (side, column), needed=ratings is None)
        table = None
        if ratings is not None:
            table = self._one_of_each_pair(read_ratings(ratings, self._columns()))
            table = self._with_earlier_ratings(table, side) if add else table
        return self._folded(table, side, described)

    def _folded(
        self,
        table: RatingTable | None,
        side: Side = "users",
        described: FeatureTable | None = None,
    ) -> Self:
        """Return a copy that knows the users (or items) of these ratings and features."""
        if self._rating_model is not None and not self._rating_model.priors:
            msg = 'fold_in: only method="variational" fits new users without a refit'
            raise ValueError(msg)
        counts = self._rating_counts(side)
        given = table, self._catalogue, counts, side, described or FeatureTable()
        new = NewRatings.of(*given, self.history_features)
        # Starting a thread takes as long as fitting a user.
        n_threads = min(resolve_threads(self.n_jobs), len(new.ids))
        folded = self._shallow_copy()
        if self._rating_model is not None:
            folded._rating_model = self._rating_model.fold_in(new, n_threads)
        if self._click_model is not None:
            like = None if self._counts else self.like_threshold_
            clicks = (self._click_model, new, like, n_threads)
            folded._click_model = fold_in_clicks(self._interaction_settings(), *clicks)
        catalogue = new.extend(self._catalogue)
        folded._places, folded._item_counts = catalogue.places, None
        folded.user_ids_, folded.item_ids_ = catalogue.users, catalogue.items
        folded._seen = new.replace_histories(self._seen, self._stored(new.values))
        if side == "users" and new.all_new:
            folded._item_counts = counts + np.bincount(new.other, minlength=len(counts))
        return folded

    def evaluate(
        self,
        test: RatingsLike,
        *,
        timestamps: ArrayLike | None = None,
        k: int | Sequence[int] = (1, 5, 10),
        catalogue: bool = False,
        confidence: float | None = None,
        rank_by: Ranking | None = None,
        unknown: Unknown = "warn",
    ) -> dict[str, float]:
        """Measure predictions and recommendations on held-out ratings.

        Parameters
        ----------
        test : as for `fit`
            Ratings that were not used in the fit. A model with `time_features` uses their times. Of
            several ratings of a pair, the latest counts, as in `fit`, with a warning.
        timestamps : array-like of shape (n_ratings,), optional
            Times of the ratings, unless they are a column of `test`.
        k : int or sequence of int, default=(1, 5, 10)
            Numbers of top ranks that the metrics consider.
        catalogue : bool, default=False
            Whether to also rank the whole catalogue, without the items that each user rated in
            `fit`. Test ratings of at least ``like_threshold_`` count as relevant; users without
            relevant ratings are left out.
        confidence : float, optional
            Level of confidence intervals for the means over users of `catalogue`, for example 0.95.
            Adds "recall@k_low", "recall@k_high" and so on, from a normal approximation.
        rank_by : {"like", "rating"}, optional
            Ranking used for `catalogue`; as for `recommend`.
        unknown : {"warn", "ignore"}, default="warn"
            As for `predict`.

        Returns
        -------
        dict
            ``{"rmse": ..., "ndcg@1": ..., ...}``: RMSE, and the mean over users of nDCG@k, which
            ranks only the test ratings and averages ties. The gain is 2^rating - 1, or the rating
            itself if ratings exceed 1000. Negative ratings are first shifted so that the smallest
            counts as 0. With `catalogue` also "recall@k", "catalogue_ndcg@k", "map@k" and
            "coverage@k" (`dualgap.metrics`), "precision@k" (hits divided by k), "hit_rate@k" (share
            of users with a hit) and "mrr@k" (mean of 1 over the rank of the first hit, 0 without
            one).
        """
        self._check_fitted()
        ranks = check_ranks(k)
        check_confidence(confidence)
        timed = self._rating_model is not None and self._rating_model.times is not None
        table = read_ratings(
            test, self._columns(), name="test", timestamps=timestamps, seconds=timed
        )
        table = self._one_of_each_pair(table, "test")
        users = self._catalogue.find_users(table.users, unknown)
        items = self._catalogue.find_items(table.items, unknown)
        result = {}
        if self._rating_model is not None:
            times = table.times if timed else None
            predicted = self._rating_model.predict(self._timed(users, items, times))
            result = rating_metrics(table, predicted, ranks, self.levels_)
        if catalogue or self._rating_model is None:
            liked = np.flatnonzero(table.values >= self.like_threshold_)
            warn_of_seen(self._seen, users[liked], items[liked])
            model, threads = self._model(self._ranking(rank_by)), resolve_threads(self.n_jobs)
            candidates = Candidates(np.ones(len(self.item_ids_), dtype=bool), self._seen, threads)
            relevant = users[liked], items[liked], table.users[liked]
            result |= evaluate_catalogue(model, candidates, relevant, ranks, confidence)
        return result

    def score(self, ratings: RatingsLike, y: object = None) -> float:
        """Return minus the RMSE, as a score for scikit-learn's searches (larger is better).

        For ``task="clicks"``, the score is recall@10 over the catalogue.

        Parameters
        ----------
        ratings : as for `fit`
            Ratings that were not used in the fit.
        y : ignored
            For compatibility with scikit-learn.

        Returns
        -------
        float
        """
        found = self.evaluate(ratings, k=(10,), unknown="ignore")
        return found["recall@10"] if self.task == "clicks" else -found["rmse"]
