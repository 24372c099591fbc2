"""The methods of a fitted recommender: predictions, rankings, new users and items, scores."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from dualgap._choices import Ranking, Task, check_choice
from dualgap._estimator import Estimator
from dualgap._estimator.watch import CallbackSupportMixin
from dualgap._validation import FloatArray, check_positive, resolve_threads
from dualgap.recommend._click_model import Interactions
from dualgap.recommend._features import FeaturesLike, FeatureTable, TimeFeatures, new_features
from dualgap.recommend._fitted import Fitted, Ids
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
from dualgap.recommend._ratings import Columns, RatingsLike, read_ratings
from dualgap.recommend._tables import like_table, read_id_list, table_kind
from dualgap.recommend._training import Pairs, Unknown, check_new, distinct

# A diverse list of n items is chosen from max(_CANDIDATES[0], _CANDIDATES[1] * n) candidates.
_CANDIDATES = (50, 5)


class ServingMethods(CallbackSupportMixin, Estimator):  # type: ignore[misc]
    """The methods of a fitted recommender; a subclass has the parameters and `fit`."""

    n_components: int | None
    task: Task
    interactions: Interactions | bool
    history_features: bool | Literal["users"]
    time_features: bool | TimeFeatures
    user_column: str
    item_column: str
    rating_column: str
    timestamp_column: str
    n_jobs: int | None

    _fitted: Fitted

    def _require_fitted(self) -> Fitted:
        """Return the result of the fit. After a fit, skip scikit-learn's slower check."""
        if "_fitted" not in vars(self):
            check_is_fitted(self)
        return self._fitted

    def _columns(self, fitted: Fitted | None = None) -> Columns:
        names = self.user_column, self.item_column, self.rating_column, self.timestamp_column
        task, counts = (fitted or self).task, self._counts if fitted is None else fitted.counts
        return Columns(*names, clicks=task == "clicks", counts=counts)

    @property
    def _counts(self) -> bool:
        """Whether the values of ratings are counts of clicks."""
        return self.task == "clicks" and getattr(self.interactions, "like_threshold", None) is None

    def _interaction_settings(self) -> Interactions:
        given = self.interactions if isinstance(self.interactions, Interactions) else Interactions()
        if self.task == "clicks" and given.n_components is None:
            return replace(given, n_components=self.n_components)
        return given

    def _time_settings(self) -> TimeFeatures:
        given = self.time_features
        return given if isinstance(given, TimeFeatures) else TimeFeatures()

    def _fold_in_settings(self) -> tuple[Interactions, bool | Literal["users"], int]:
        return self._interaction_settings(), self.history_features, resolve_threads(self.n_jobs)

    def _in_library(self, table: pd.DataFrame, given: Any = None) -> pd.DataFrame:
        """Convert a table to the library of the table `given`, or else to that of the fit."""
        converted: pd.DataFrame = like_table(table, table_kind(given) or self._fitted.tables)
        return converted

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
            Treatment of ids that were not in the ratings. The prediction for an unknown user
            depends only on the item, and for an unknown item only on the user (it is 0 for
            ``task="clicks"``). "warn" reports their number; it is an error if all are unknown.

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
        fitted = self._require_fitted()
        pairs = fitted.pairs(users, items, timestamps, unknown, self._time_settings())
        return fitted.model(fitted.default_ranking).predict(pairs)

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
            If the fit had another `task` than "ordinal": other models have no level probabilities.
        """
        fitted = self._require_fitted()
        if fitted.rating_model is None or not fitted.scale.ordinal:
            msg = f'predict_proba: task="{fitted.task}" gives no level probabilities; use "ordinal"'
            raise AttributeError(msg)
        pairs = fitted.pairs(users, items, timestamps, unknown, self._time_settings())
        return fitted.rating_model.predict_proba(pairs)

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
        fitted = self._require_fitted()
        check_positive("n", n, integer=True)
        check_positive("diversity", diversity, zero=True)
        if diversity > 1.0:
            msg = f"diversity: must be from 0 to 1, got {diversity!r}"
            raise ValueError(msg)
        known, folded = fitted.catalogue, fitted
        allowed = allowed_items(known.items, items, exclude, mask)
        if rank_by is None and fitted.click_model is not None and not allowed.all():
            rank_by = None if allowed[fitted.seen.columns].any() else "like"
        ranking = fitted.ranking(rank_by)
        if ratings is not None:
            table = read_ratings(ratings, self._columns(fitted))
            rated = distinct(table.users)[1]
            places = known.places[0].find(rated)
            check_new(known.users, rated[places == len(known.users)], "ratings (users)")
            names = rated if users is None else read_id_list(users, "users")
            # If all wanted users are in `ratings`, avoid copies that grow with the number of known
            # users.
            light = names is rated or (rated.get_indexer(names) >= 0).all()
            clicks = "like" in (ranking, diversity > 0.0 and fitted.similarity)
            folded = fitted.without_users(clicks=clicks) if light else fitted
            folded = folded.fold_in(table, "users", FeatureTable(), self._fold_in_settings())
        catalogue = folded.catalogue
        if ratings is None:
            names = catalogue.users if users is None else read_id_list(users, "users")
        rows = catalogue.find_users(names, unknown)
        excluded = None
        if isinstance(exclude, Mapping):
            users_of_both = known.users, catalogue.users
            excluded = excluded_items(names, users_of_both, catalogue.items, exclude)
        threads = min(resolve_threads(self.n_jobs), max(1, len(rows)))
        candidates = Candidates(allowed, folded.seen if exclude_seen else None, threads, excluded)
        length = int(n) if diversity == 0.0 else max(_CANDIDATES[0], _CANDIDATES[1] * int(n))
        length = min(length, len(catalogue.items))
        best = folded.model(ranking).best_items(rows, length, candidates)
        if diversity > 0.0:
            vectors = folded.model(fitted.similarity).item_vectors()
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
        fitted = self._require_fitted()
        known = fitted.catalogue.items
        allowed = allowed_items(known, among, name="among")
        vectors = fitted.model(fitted.similarity).item_vectors()
        side = Neighbours(known, vectors, fitted.item_counts, allowed)
        return self._in_library(
            side.table(read_id_list(items, "items"), n, "items", self.item_column)
        )

    def similar_users(
        self, users: Ids, n: int = 10, *, among: Iterable[Hashable] | None = None
    ) -> pd.DataFrame:
        """Return users who like the same items; see `similar_items`. Requires ``interactions``."""
        fitted = self._require_fitted()
        known = fitted.catalogue.users
        allowed = allowed_items(known, among, name="among")
        side = Neighbours(known, fitted.clicks().users[1:], fitted.user_counts, allowed)
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
        fitted = self._require_fitted()
        model, known = fitted.clicks(), fitted.catalogue
        check_positive("n", n, integer=True)
        places = known.place_of("user", user), known.place_of("item", item)
        items, parts = model.contributions(*places)
        order = np.argsort(-parts, kind="stable")[:n]
        columns = {
            self.item_column: known.items[items[order]],
            "rank": np.arange(1, len(order) + 1),
            "contribution": parts[order],
        }
        return self._in_library(pd.DataFrame(columns))

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
        fitted = self._require_fitted()
        check_choice("side", side, "users", "items")
        column = self.user_column if side == "users" else self.item_column
        described = new_features(features, fitted.encoders, (side, column), needed=ratings is None)
        table = None
        if ratings is not None:
            table = read_ratings(ratings, self._columns(fitted))
            table = fitted.with_earlier_ratings(table, side) if add else table
        folded = fitted.fold_in(table, side, described, self._fold_in_settings())
        # `copy.copy` would drop or convert some attributes.
        result: Self = object.__new__(type(self))
        result.__dict__.update(vars(self), _fitted=folded)
        return result

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
        fitted = self._require_fitted()
        ranks = check_ranks(k)
        check_confidence(confidence)
        known, timed = fitted.catalogue, fitted.has_times
        table = read_ratings(
            test, self._columns(fitted), name="test", timestamps=timestamps, seconds=timed
        )
        users = known.find_users(table.users, unknown)
        items = known.find_items(table.items, unknown)
        result = {}
        if fitted.rating_model is not None:
            times = table.times if timed else None
            pairs = Pairs.at_times(users, items, times, self._time_settings())
            predicted = fitted.rating_model.predict(pairs)
            result = rating_metrics(table, predicted, ranks, fitted.scale.levels)
        if catalogue or fitted.rating_model is None:
            liked = np.flatnonzero(table.values >= fitted.like)
            warn_of_seen(fitted.seen, users[liked], items[liked])
            model, threads = fitted.model(fitted.ranking(rank_by)), resolve_threads(self.n_jobs)
            candidates = Candidates(np.ones(len(known.items), dtype=bool), fitted.seen, threads)
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
        return -found["rmse"] if "rmse" in found else found["recall@10"]
