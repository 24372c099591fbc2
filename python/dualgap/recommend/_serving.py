"""The methods of a fitted recommender: predictions, rankings, new users and items, scores."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap._choices import Ranking, Reduction, check_choice
from dualgap._estimator import Estimator
from dualgap._validation import FloatArray, check_positive, resolve_threads
from dualgap.recommend._click_model import ClickModel
from dualgap.recommend._click_training import fold_in_clicks
from dualgap.recommend._counts import count_clicks
from dualgap.recommend._features import FeatureEncoder, FeaturesLike, new_features
from dualgap.recommend._interactions import Interactions
from dualgap.recommend._ranking import (
    Candidates,
    Model,
    Neighbours,
    allowed_items,
    check_confidence,
    check_ranks,
    evaluate_catalogue,
    excluded_items,
    ranked_table,
    rating_metrics,
)
from dualgap.recommend._rating_model import RatingModel
from dualgap.recommend._ratings import (
    Catalogue,
    Columns,
    Pairs,
    RatingsLike,
    RatingTable,
    Unknown,
    last_of_each_pair,
    read_id_list,
    read_ratings,
    read_times,
)
from dualgap.recommend._training import NewRatings, TimeFeatures

__all__ = ["FittedRecommender"]

Ids = Hashable | Iterable[Hashable]


class FittedRecommender(Estimator):
    """A recommender whose models are fitted.

    Subclasses have the parameters, and a `fit` that sets the attributes.
    """

    n_components: int | None
    reduction: Reduction
    interactions: Interactions | bool
    history_features: bool | Literal["users"]
    time_features: bool | TimeFeatures
    user_column: str
    item_column: str
    rating_column: str
    timestamp_column: str

    user_ids_: pd.Index[Any]
    item_ids_: pd.Index[Any]
    levels_: FloatArray
    like_: float

    # None for a reduction that predicts no ratings.
    _rating_model: RatingModel | None
    # None for a fit without interactions.
    _click_model: ClickModel | None
    # Pairs with ratings, as ones.
    _seen: sp.csr_array
    # How features of users and of items become numbers; None without features.
    _encoders: tuple[FeatureEncoder | None, FeatureEncoder | None]

    def predict(
        self,
        users: Ids,
        items: Ids,
        *,
        timestamps: ArrayLike | None = None,
        unknown: Unknown = "warn",
    ) -> FloatArray:
        """Expected ratings of (user, item) pairs.

        Parameters
        ----------
        users, items : id or iterable of ids
            Equally many, or one of them a single id.
        timestamps : array-like of shape (n_pairs,) or a single time, optional
            When the ratings are given, for a model with `time_features`: seconds since 1970, or
            dates. Without them nothing is known of the time.
        unknown : {"warn", "ignore"}, default="warn"
            What to do about ids that were not in the ratings. They count as an average user or
            item; "warn" reports their number and raises an error if all are unknown.

        Returns
        -------
        ndarray of shape (n_pairs,)
            Within the range of the levels; for ``reduction="interactions"`` scores, about 1 for
            what the user takes up and 0 for the rest.

        Raises
        ------
        ValueError
            If none of the users or items was in the ratings, or the model has no time features.
        TypeError
            If ids are strings where those of the ratings are numbers, or the other way around.
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
        """Probability of each level of ``levels_`` for (user, item) pairs.

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
            For another reduction than "mcrank", which has no level probabilities.
        """
        check_is_fitted(self)
        if self.reduction != "mcrank":
            msg = (
                f'predict_proba: reduction="{self.reduction}" gives no level probabilities; '
                'use "mcrank"'
            )
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
        unknown: Unknown = "warn",
    ) -> pd.DataFrame:
        """The best items for each user, of the whole catalogue.

        Parameters
        ----------
        users : id or iterable of ids, optional
            Whom to recommend to; by default all users of `ratings`, and without these all known
            users.
        n : int, default=10
            Items per user.
        ratings : as for `fit`, optional
            Ratings of users who are new, or have rated more since: they are fitted to these as by
            `fold_in`, for this call alone.
        rank_by : {"like", "rating"}, optional
            "like": what the user is most likely to take up and like, by the interactions; "rating":
            the highest expected rating, were the user to rate it, which favours items that few
            know. The default is "rating"; it is "like" for ``reduction="interactions"``, and if no
            item that may be recommended has ratings. With "like", items without ratings and
            features are never recommended.
        exclude_seen : bool, default=True
            Leave out what the user has rated.
        items, exclude : id or iterable of ids, optional
            The only items that may be recommended, and items that may not. A dictionary from users
            to ids of items, ``exclude={user: items}``, leaves them out for these users alone; a
            warning names ids in it that were not in the ratings.
        mask : array-like of bool, shape (n_items,), optional
            Which of ``item_ids_`` may be recommended.
        unknown : {"warn", "ignore"}, default="warn"
            As for `predict`.

        Returns
        -------
        DataFrame
            Columns user, rank (from 1), item, score (in single precision), the first and third
            named as `user_column` and `item_column`; fewer rows for a user to whom fewer may be
            recommended. Equal scores keep the order of ``item_ids_``.
        """
        check_is_fitted(self)
        check_positive("n", n, integer=True)
        if ratings is not None and users is None:
            users = read_ratings(ratings, self._columns()).users.unique()
        model = self if ratings is None else self.fold_in(ratings)
        catalogue, seen = model._catalogue, model._seen
        names = catalogue.users if users is None else read_id_list(users, "users")
        rows = catalogue.find_users(names, unknown)
        allowed = allowed_items(catalogue.items, items, exclude, mask)
        excluded = None
        if isinstance(exclude, Mapping):
            excluded = excluded_items(names, catalogue, exclude)
        if rank_by is None and self._click_model is not None and not allowed[seen.indices].any():
            rank_by = "like"
        threads = resolve_threads(self.n_jobs)
        candidates = Candidates(allowed, seen if exclude_seen else None, threads, excluded)
        ranking = model._model(self._ranking(rank_by))
        best = ranking.best_items(rows, min(int(n), len(catalogue.items)), candidates)
        return ranked_table(names, catalogue.items, best, (self.user_column, self.item_column))

    def similar_items(
        self, items: Ids, n: int = 10, *, among: Iterable[Hashable] | None = None
    ) -> pd.DataFrame:
        """Items that the same users like: largest cosine between the items' vectors.

        The vectors are those of clicks, or of ratings if the fit had ``interactions=False``. A
        cosine is multiplied by ``c / (c + 10)`` for both items, c being their numbers of ratings,
        so that items that hardly anyone knows do not come first.

        Parameters
        ----------
        items : id or iterable of ids
            Known items.
        n : int, default=10
            Neighbours per item.
        among : iterable of ids, optional
            The only items that may be neighbours.

        Returns
        -------
        DataFrame
            Columns item (named as `item_column`), rank (from 1), similar, score.

        Raises
        ------
        KeyError
            For an unknown item. A known one without ratings and features has no neighbours.
        """
        check_is_fitted(self)
        allowed = allowed_items(self.item_ids_, among, name="among")
        counts = np.bincount(self._seen.indices, minlength=len(self.item_ids_))
        model = self._model(self._default_ranking() if self._click_model is None else "like")
        side = Neighbours(self.item_ids_, model.item_vectors(), counts, allowed)
        return side.table(read_id_list(items, "items"), n, "items", self.item_column)

    def similar_users(
        self, users: Ids, n: int = 10, *, among: Iterable[Hashable] | None = None
    ) -> pd.DataFrame:
        """Users who like the same items, as `similar_items`; needs a fit with `interactions`."""
        allowed = allowed_items(self.user_ids_, among, name="among")
        counts = np.diff(self._seen.indptr)
        side = Neighbours(self.user_ids_, self.user_vectors_, counts, allowed)
        return side.table(read_id_list(users, "users"), n, "users", self.user_column)

    @property
    def user_vectors_(self) -> FloatArray:
        """Factors of ``user_ids_`` from clicks; products with ``item_vectors_`` rank items."""
        return self._clicks().users[:-1]

    @property
    def item_vectors_(self) -> FloatArray:
        """Factors of ``item_ids_`` from clicks."""
        return self._clicks().items[:-1]

    def _clicks(self) -> ClickModel:
        check_is_fitted(self)
        if self._click_model is None:
            msg = "vectors of users and items need interactions=True (or Interactions(...)) in fit"
            raise AttributeError(msg)
        return self._click_model

    def fold_in(
        self,
        ratings: RatingsLike | None = None,
        *,
        side: Literal["users", "items"] = "users",
        features: FeaturesLike | None = None,
    ) -> Self:
        """A recommender that also knows the users of these ratings, without a refit.

        Each user is fitted to the ratings given; all else stays as it is. That takes well under a
        millisecond. A known user is fitted again: pass all ratings and features of that user, not
        the latest ones alone. Times of ratings are not used.

        Parameters
        ----------
        ratings : as for `fit`, optional
            Ratings of known items; others are left out, with a warning.
        side : {"users", "items"}, default="users"
            "items" for the same with users and items exchanged.
        features : DataFrame indexed by id, or sparse matrix, optional
            Features of new users (or items), with the columns that the features of the fit had.
            New ids in it need no ratings. Known ids without ratings here stay as they are.

        Returns
        -------
        OrdinalRecommender
            A copy; this recommender does not change.

        Raises
        ------
        ValueError
            If the method cannot (it must be "variational"), all ratings are of unknown items, or
            the fit had no features of this side.
        """
        check_is_fitted(self)
        check_choice("side", side, "users", "items")
        if self._rating_model is not None and not self._rating_model.priors:
            msg = 'fold_in: only method="variational" fits new users without a refit'
            raise ValueError(msg)
        described = new_features(features, self._encoders, side, needed=ratings is None)
        table = None
        if ratings is not None:
            table = self._one_of_each_pair(read_ratings(ratings, self._columns()))
        given = table, self._catalogue, self._seen, side, described
        new = NewRatings.of(*given, histories=self.history_features in (True, side))
        n_threads = resolve_threads(self.n_jobs)
        folded = copy.copy(self)
        if self._rating_model is not None:
            folded._rating_model = self._rating_model.fold_in(new, n_threads)
        if self._click_model is not None:
            like = None if self._counts else self.like_
            clicks = (self._click_model, new, like, n_threads)
            folded._click_model = fold_in_clicks(self._interaction_settings(), *clicks)
        catalogue = new.extend(self._catalogue)
        folded.user_ids_, folded.item_ids_ = catalogue.users, catalogue.items
        folded._seen = new.replace_histories(self._seen)
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
        """How good predictions and recommendations are on held-out ratings.

        Parameters
        ----------
        test : as for `fit`
            Ratings that had no part in the fit. A model with `time_features` uses their times.
        timestamps : array-like of shape (n_ratings,), optional
            Their times where they are not a column.
        k : int or sequence of int, default=(1, 5, 10)
            Numbers of ranks.
        catalogue : bool, default=False
            Also rank the whole catalogue, without what each user rated in `fit`, and look for the
            test ratings of at least ``like_``; users without any are left out.
        confidence : float, optional
            Level of confidence intervals for the means over users of `catalogue`, for example 0.95:
            adds "recall@k_low" and "recall@k_high" and so on, by the normal distribution.
        rank_by : {"like", "rating"}, optional
            How `catalogue` ranks; as for `recommend`.
        unknown : {"warn", "ignore"}, default="warn"
            As for `predict`.

        Returns
        -------
        dict
            ``{"rmse": ..., "ndcg@1": ..., ...}``: RMSE, and the mean nDCG@k per user among the test
            ratings alone (gain 2^rating - 1, ties averaged); with `catalogue` also "recall@k",
            "catalogue_ndcg@k", "map@k" and "coverage@k" (`dualgap.metrics`), "precision@k" (hits
            among k items), "hit_rate@k" (users with a hit) and "mrr@k" (mean of 1 over the rank of
            the first hit, 0 without one).
        """
        check_is_fitted(self)
        ranks = check_ranks(k)
        check_confidence(confidence)
        table = read_ratings(test, self._columns(), name="test", timestamps=timestamps)
        if self._counts:
            table = count_clicks(table, "test")
        users = self._catalogue.find_users(table.users, unknown)
        items = self._catalogue.find_items(table.items, unknown)
        result = {}
        if self._rating_model is not None:
            times = table.times if self._rating_model.times is not None else None
            predicted = self._rating_model.predict(self._timed(users, items, times))
            result = rating_metrics(table, predicted, ranks)
        if catalogue or self._rating_model is None:
            liked = np.flatnonzero(table.values >= self.like_)
            model, threads = self._model(self._ranking(rank_by)), resolve_threads(self.n_jobs)
            candidates = Candidates(np.ones(len(self.item_ids_), dtype=bool), self._seen, threads)
            relevant = users[liked], items[liked], table.users[liked]
            result |= evaluate_catalogue(model, candidates, relevant, ranks, confidence)
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

    @property
    def _catalogue(self) -> Catalogue:
        return Catalogue(self.user_ids_, self.item_ids_)

    def _columns(self) -> Columns:
        names = self.user_column, self.item_column, self.rating_column, self.timestamp_column
        return Columns(*names, clicks=self.reduction == "interactions")

    @property
    def _counts(self) -> bool:
        """Whether values count clicks."""
        return self.reduction == "interactions" and self._interaction_settings().like is None

    def _one_of_each_pair(self, table: RatingTable, name: str = "ratings") -> RatingTable:
        return count_clicks(table, name) if self._counts else last_of_each_pair(table)

    def _interaction_settings(self) -> Interactions:
        given = self.interactions if isinstance(self.interactions, Interactions) else Interactions()
        if self.reduction == "interactions" and given.n_components is None:
            return replace(given, n_components=self.n_components)
        return given

    def _time_settings(self) -> TimeFeatures:
        given = self.time_features
        return given if isinstance(given, TimeFeatures) else TimeFeatures()

    def _default_ranking(self) -> Ranking:
        return "like" if self.reduction == "interactions" else "rating"

    def _ranking(self, rank_by: Ranking | None) -> Ranking:
        if rank_by is None:
            return self._default_ranking()
        check_choice("rank_by", rank_by, Ranking)
        if rank_by == "rating" and self.reduction == "interactions":
            msg = 'rank_by: reduction="interactions" predicts no ratings; use "like"'
            raise ValueError(msg)
        if rank_by == "like" and self._click_model is None:
            msg = 'rank_by: "like" needs interactions=True (or Interactions(...)) in the fit'
            raise ValueError(msg)
        return rank_by

    def _model(self, ranking: Ranking) -> Model:
        """The model with the scores of a ranking."""
        model: Model | None = self._click_model if ranking == "like" else self._rating_model
        assert model is not None
        return model

    def _pairs(self, users: Ids, items: Ids, timestamps: Any, unknown: Unknown) -> Pairs:
        check_is_fitted(self)
        u = self._catalogue.find_users(read_id_list(users, "users"), unknown)
        i = self._catalogue.find_items(read_id_list(items, "items"), unknown)
        if len(u) != len(i) and 1 not in (len(u), len(i)):
            msg = (
                "users, items: must be equally many (or one of them a single id), "
                f"got {len(u)} and {len(i)}"
            )
            raise ValueError(msg)
        u, i = np.broadcast_arrays(u, i)
        if timestamps is not None and np.ndim(timestamps) == 0:
            timestamps = np.repeat(np.asarray(timestamps), len(u))
        return self._timed(u, i, timestamps)

    def _timed(self, users: NDArray[np.intp], items: NDArray[np.intp], timestamps: Any) -> Pairs:
        """Pairs with the periods of their times, if these are given."""
        if timestamps is None:
            return Pairs(users, items)
        if self._rating_model is None or self._rating_model.times is None:
            msg = "timestamps: this recommender was fitted without time_features"
            raise ValueError(msg)
        times = read_times(timestamps, len(users))
        return Pairs(users, items, self._time_settings().periods(users, items, times))
