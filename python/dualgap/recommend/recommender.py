"""Recommendation by ordinal regression on multi-output factorization machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike

from dualgap._choices import MethodName, Task, check_choice
from dualgap._estimator import (
    Callback,
    History,
    RandomState,
    announce,
    ordered,
    relative_gap,
    require,
    restores_on_error,
    watch,
)
from dualgap._validation import FloatArray, check_positive
from dualgap.recommend._click_model import Interactions, weigh_counts
from dualgap.recommend._click_training import fit_clicks
from dualgap.recommend._conditional_gradient import ConditionalGradient
from dualgap.recommend._features import (
    FeaturesLike,
    FeatureTable,
    Periods,
    TimeFeatures,
    feature_rows,
    read_features,
)
from dualgap.recommend._fitted import Fitted, stored_values
from dualgap.recommend._growing import Lists
from dualgap.recommend._rating_model import Method, default_n_components
from dualgap.recommend._ratings import (
    RatingScale,
    RatingsLike,
    RatingTable,
    find_levels,
    read_ratings,
)
from dualgap.recommend._serving import ServingMethods
from dualgap.recommend._tables import table_kind
from dualgap.recommend._training import (
    Catalogue,
    FitRecord,
    IndexedRatings,
    RunOptions,
    Training,
)
from dualgap.recommend._variational import Variational

__all__ = ["OrdinalRecommender"]

# Parts of the record of a fit in model files, besides the history.
_RECORD = ("objective", "dual_objective", "null_objective", "converged", "certificate")

_METHODS: dict[str, type[Method]] = {kind.name: kind for kind in (Variational, ConditionalGradient)}


@ordered
@dataclass(kw_only=True, eq=False, repr=False)
class OrdinalRecommender(ServingMethods):
    """Predict ratings and recommend items with a multi-output factorization machine.

    Ratings are reduced to one binary output per threshold between two levels, and all outputs share
    a basis (ordinal McRank; Blondel et al., NIPS 2017, section 6.5). Output c is the log-odds of a
    rating of at most level c:

    ``o_c = b_c + l_uc + l_ic + sum_r U_rc p_ur q_ir``.

    The expected rating is the mean of the levels, weighted by their probabilities. The probability
    of a level is the probability of a rating of at most this level, minus that of a rating of at
    most the level below. Isotonic regression first makes these cumulative probabilities monotone.
    It is weighted by the gaps between the levels, so that it does not change the expected rating.

    Parameters
    ----------
    n_components : int, optional
        Maximum number of basis vectors; superfluous ones shrink to zero. A variational fit starts
        with fewer if this number exceeds the number of ratings, or the number of outputs times the
        number of users or of items with ratings (whichever is smaller). The default grows with the
        number n of ratings: 8 for up to 50,000 ratings, then ``8 * (n / 50000) ** 0.4``. More basis
        vectors are useful with `history_features`: the exponent is 0.55, up to 64 vectors. With
        ``task="clicks"``, `n_components` is the length of the user and item vectors, unless
        `interactions` sets a different `n_components`.
    task : {"ordinal", "regression", "clicks"}, default="ordinal"
        "ordinal": one output per threshold. "regression": a single output with squared loss (for
        comparison). "clicks": predicts only which user chooses which item, from clicks,
        purchases or likes (see `Interactions`). Values are optional (see `fit`).
    method : {"variational", "conditional-gradient"}, Variational or ConditionalGradient, \
            default="variational"
        Training method: a name for the default parameters, or an object with parameters.
        `Variational` gives the best predictions but has no certificate; `ConditionalGradient` grows
        the basis one vector at a time, with a duality gap.
    history_features : {False, True, "users"}, default=False
        Whether the features of a user include the set of items that the user has rated, and the
        features of an item the set of users who have rated it; "users" means only the features of
        users.
    time_features : bool or TimeFeatures, default=False
        Whether every output gets a weight for each user and quarter of an hour, and for each item
        and month, as in timeSVD++ (a `TimeFeatures` object sets other lengths). The fit then needs
        the times of ratings; predictions do not. Recommendations do not depend on times. Only for
        ``method="variational"``.
    interactions : bool or Interactions, default=True
        Whether to also learn which items of the catalogue a user chooses and likes.
        ``recommend(rank_by="like")`` requires this. Use an `Interactions` object to set its
        parameters.
    levels : sequence of float, optional
        All possible ratings; by default the ratings that occur.
    user_column, item_column, rating_column : str
        Names of the columns, if ratings are a table.
    timestamp_column : str, default="timestamp"
        Name of the column of times. If a table has it, it determines the latest of several ratings
        of the same user and item, and the periods of `time_features`.
    n_jobs : int, optional
        Number of threads; None and -1 mean all cores. The model does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed.
    verbose : int, optional
        Progress on stderr. None: after two seconds, a bar with the gap and the remaining time, on a
        terminal only. 0: nothing. 1: the bar from the start; without a terminal, one line per
        epoch, at most one per second.
    callback : callable, optional
        Called after each epoch as ``callback(epoch, seconds, objective, dual_objective)``, with NaN
        for an unknown bound. A true return value stops the fit. If several models are fitted,
        epochs and seconds continue from one model to the next. While `Variational` chooses
        `tempering`, the epoch is 0 and the objective NaN, and the seconds are those of this choice;
        a fit that is stopped then still runs one epoch.

    Attributes
    ----------
    user_ids_, item_ids_ : pandas.Index
        Known ids.
    levels_ : ndarray
        Rating levels in increasing order.
    like_threshold_ : float
        Smallest rating that counts as a like.
    user_vectors_, item_vectors_ : ndarray of shape (n_users, n_factors) and (n_items, n_factors)
        Factors of ``user_ids_`` and ``item_ids_`` from clicks; only with `interactions`.
    n_components_ : int
        Largest number of basis vectors in use in any model.
    objective_ : float
        Objective of the (last) model.
    dual_objective_, duality_gap_, null_objective_ : float or None
        A lower bound on the objective of every factorization machine within the radius of
        `ConditionalGradient`; the difference between ``objective_`` and this bound; and the
        objective of the null model. None for `Variational`, which computes no bound.
    relative_gap_ : float or None
        ``duality_gap_ / objective_``, which is compared with ``tol``; None for `Variational`.
    certificate_ : str
        Scope of the bound: for `Variational` "none", for `ConditionalGradient` as in the polynomial
        models.
    converged_ : bool or None
        Whether the gap reached ``tol``; None for `Variational`.
    n_iter_ : int
        Number of epochs of all models together.
    history_ : dict of ndarray
        Per epoch: epoch, seconds, objective, dual_objective, gap (NaN if no bound is known); for
        `Variational` also model (its number), for `ConditionalGradient` n_components and, with
        validation ratings, validation_loss and validation_score.

    Notes
    -----
    An unknown user or item is predicted like the users or items with one rating and, if these are
    few, also like the mean over all ratings. With ``method="conditional-gradient"``, an unknown id
    adds nothing to the outputs; with ``task="clicks"``, an unknown item scores 0. A warning reports
    the number of unknown ids.

    If a user rated an item several times, the latest rating is used, with a warning.

    With ``task="clicks"``, values are counts of clicks. Counts of the same user and item add up,
    and a count has the weight 1 + log10(count), at least 1. A warning reports values that are not
    whole numbers. `evaluate` treats all test pairs as relevant. With
    ``interactions=Interactions(like_threshold=...)``, values are ratings instead, and ratings of
    at least `like_threshold` are likes.

    Examples
    --------
    >>> from dualgap.datasets import synthetic_ratings
    >>> ratings = synthetic_ratings(4000, 100, 80)
    >>> model = OrdinalRecommender(random_state=0).fit(ratings)
    >>> model.predict([47, 48], [9, 9]).round(1)
    array([4. , 4.2])
    >>> model.recommend([47], n=2)["item"].tolist()
    [37, 13]
    """

    n_components: int | None = field(default=None, kw_only=False)
    task: Task = "ordinal"
    method: MethodName | Variational | ConditionalGradient = "variational"
    history_features: bool | Literal["users"] = False
    time_features: bool | TimeFeatures = False
    interactions: Interactions | bool = True
    levels: Sequence[float] | None = None
    user_column: str = "user"
    item_column: str = "item"
    rating_column: str = "rating"
    timestamp_column: str = "timestamp"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int | bool | None = None
    callback: Callback | None = None

    n_components_: int = field(init=False)
    n_iter_: int = field(init=False)
    objective_: float = field(init=False)
    history_: History = field(init=False)
    dual_objective_: float | None = field(init=False)
    duality_gap_: float | None = field(init=False)
    relative_gap_: float | None = field(init=False)
    null_objective_: float | None = field(init=False)
    certificate_: str = field(init=False)
    converged_: bool | None = field(init=False)

    _fitted: Fitted = field(init=False)

    @restores_on_error
    def fit(
        self,
        ratings: RatingsLike,
        y: object = None,
        *,
        user_features: FeaturesLike | None = None,
        item_features: FeaturesLike | None = None,
        sample_weight: ArrayLike | None = None,
        timestamps: ArrayLike | None = None,
        validation: RatingsLike | None = None,
    ) -> Self:
        """Fit the recommender to ratings.

        Parameters
        ----------
        ratings : table, tuple (users, items, values), array of shape (n, 3), sparse matrix, or path
            Training ratings, with ids of any hashable type. A table is a DataFrame of pandas,
            polars or modin, or a pyarrow table; methods then return such tables. A path names a
            Parquet file or a folder of Parquet files; only the needed columns are read, in batches
            of rows. An iterator of tables is also read part by part. A sparse matrix has users as
            rows and items as columns; its weights and timestamps are in the order of the entries of
            ``ratings.tocoo()``, which is row by row for CSR and column by column for CSC. With
            ``task="clicks"``, values are optional: a list of pairs, a tuple (users, items) or an
            array of shape (n, 2) is enough. All rows and columns of a sparse matrix are then known
            ids.
        y : ignored
            For compatibility with scikit-learn.
        user_features, item_features : DataFrame indexed by id, or sparse matrix, optional
            Additional inputs of the rating model and the click model. Numeric columns are
            standardised, other columns become one input per value, and each row is scaled to unit
            length. Row r of a sparse matrix belongs to the id r. Ids with features but no ratings
            are known, too. In tables of other libraries, the column `user_column` or `item_column`
            contains the ids.
        sample_weight : array-like of shape (n_ratings,), optional
            Positive weight of each rating.
        timestamps : array-like of shape (n_ratings,), optional
            Times of the ratings, as seconds since 1970 or as dates; not needed if `ratings` has a
            column of times. If a user rated an item several times, the latest rating is used.
        validation : as `ratings`, optional
            Ratings on which "conditional-gradient" chooses the number of basis vectors, and the
            radius if that is None. Other methods do not accept them.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For invalid ratings or parameters; the message names the argument.
        """
        method = self._check_parameters()
        clicks = self._interaction_settings()
        clicks_only = self.task == "clicks"
        n_epochs = clicks.max_iter if clicks_only else method.n_epochs()
        # Ratings also serve as targets, because `score` takes no separate targets.
        again = None if isinstance(ratings, Iterator) else ratings
        with watch(self, (n_epochs, None), data=(again, again, None)) as callback:
            announce(callback, "reading ratings")
            given: Any = {
                "sample_weight": sample_weight,
                "timestamps": timestamps,
                "seconds": self.time_features is not False,
            }
            table = read_ratings(ratings, self._columns(), **given, coded=True)
            described = (
                read_features(user_features, "user_features", self.user_column),
                read_features(item_features, "item_features", self.item_column),
            )
            fitted, training, clicked = self._training(table, described, method, validation)
            del table
            rating_model = click_model = None
            options = RunOptions(self.random_state, self.n_jobs, callback)
            if clicks_only:
                click_model, record = fit_clicks(clicks, clicked, fitted.like, options)
            else:
                n_components = self._n_components(len(training.ratings.values))
                rating_model, record = method.run(training, fitted.scale, n_components, options)
                if self.interactions is not False:
                    quietly = replace(options, callback=None)
                    click_model, _ = fit_clicks(clicks, clicked, fitted.like, quietly)
            fitted = replace(fitted, rating_model=rating_model, click_model=click_model)
            self._store(replace(fitted, tables=table_kind(ratings) or "pandas"), record)
        return self

    def _training(
        self,
        table: RatingTable,
        described: tuple[FeatureTable, FeatureTable],
        method: Method,
        validation: RatingsLike | None,
    ) -> tuple[Fitted, Training, Training]:
        """Return a result without models, and the data of the rating and click models."""
        catalogue = Catalogue.of(table, described[0].ids, described[1].ids)
        scale = RatingScale(self._levels(table), self.task == "ordinal")
        encoded = catalogue.index(table)
        if self._counts:
            encoded = weigh_counts(encoded)
        if self.time_features is not False:
            encoded = replace(encoded, periods=self._periods(encoded, table.times))
        pairs = encoded.users, encoded.items
        stored = stored_values(table.values, scale, ones=self._counts)
        matrix = sp.csr_array((stored, pairs), catalogue.shape)
        fitted = Fitted(
            catalogue=catalogue,
            scale=scale,
            like=0.0 if self._counts else self._interaction_settings().threshold(scale.levels),
            counts=self._counts,
            seen=Lists.of(matrix),
            encoders=(described[0].encoder, described[1].encoder),
        )
        ones = np.ones(len(matrix.data), np.int8)
        seen = sp.csr_array((ones, matrix.indices, matrix.indptr), catalogue.shape)
        ids = catalogue.users, catalogue.items
        features = feature_rows(ids, described, seen, self.history_features)
        held_out = self._held_out(validation, method, catalogue)
        training = Training(encoded, catalogue.shape, features, held_out)
        # The click model itself learns from histories, so its features do not include them.
        plain = feature_rows(ids, described, seen, False)
        return fitted, training, replace(training, features=plain)

    def _held_out(
        self, validation: RatingsLike | None, method: Method, catalogue: Catalogue
    ) -> IndexedRatings | None:
        """Return the ratings on which the number of basis vectors is chosen."""
        if validation is None:
            return None
        if not method.validates:
            msg = 'validation: only method="conditional-gradient" uses it'
            raise ValueError(msg)
        table = read_ratings(validation, self._columns(), name="validation", repeats=True)
        return catalogue.index(table)

    def _periods(self, ratings: IndexedRatings, times: FloatArray | None) -> Periods:
        """Return the periods of the ratings' times (in seconds)."""
        if times is None:
            msg = (
                f"timestamps: time_features needs the times of the ratings: pass timestamps=, or a "
                f"table with the column {self.timestamp_column!r}"
            )
            raise ValueError(msg)
        return self._time_settings().periods(ratings.users, ratings.items, times)

    def _levels(self, table: RatingTable) -> FloatArray:
        if not self._counts:
            return find_levels(table, self.levels, self.task)
        if self.levels is not None:
            msg = (
                'levels: with task="clicks" values count clicks and have no levels; to treat them '
                "as ratings, set interactions=Interactions(like_threshold=...)"
            )
            raise ValueError(msg)
        return np.ones(1)

    def _n_components(self, n_ratings: int) -> int:
        if self.n_components is None:
            return default_n_components(n_ratings, bool(self.history_features))
        return int(self.n_components)

    def _store(self, fitted: Fitted, record: FitRecord) -> None:
        """Set the result of a fit, and the attributes that describe it."""
        self._fitted = fitted
        for part in fields(FitRecord):
            setattr(self, f"{part.name}_", getattr(record, part.name))
        self.duality_gap_ = self.relative_gap_ = None
        if record.dual_objective is not None:
            self.duality_gap_ = record.objective - record.dual_objective
            self.relative_gap_ = relative_gap(self.duality_gap_, record.objective)
        self.n_iter_ = len(record.history["epoch"])
        self.n_components_ = 0 if fitted.rating_model is None else fitted.rating_model.n_bases

    def _state(self) -> dict[str, Any]:
        self._require_same_task(self._fitted)
        record = {name: getattr(self, f"{name}_") for name in _RECORD}
        return {**self._fitted.state(), "record": record, "history": dict(self.history_)}

    def _restore(self, state: Mapping[str, Any]) -> None:
        record = {name: state["record"][name] for name in _RECORD}
        fitted = Fitted.of_state(state, counts=self._counts)
        self._require_same_task(fitted)
        self._store(fitted, FitRecord(dict(state["history"]), **record))

    def _require_same_task(self, fitted: Fitted) -> None:
        text = (
            f'task: the model was fitted with "{fitted.task}", but the parameter is "{self.task}"'
        )
        require(fitted.task == self.task, text)

    @property
    def user_ids_(self) -> pd.Index[Any]:
        """Known users."""
        return self._require_fitted().catalogue.users

    @property
    def item_ids_(self) -> pd.Index[Any]:
        """Known items."""
        return self._require_fitted().catalogue.items

    @property
    def levels_(self) -> FloatArray:
        """Rating levels in increasing order."""
        return self._require_fitted().scale.levels

    @property
    def like_threshold_(self) -> float:
        """Smallest rating that counts as a like."""
        return self._require_fitted().like

    @property
    def user_vectors_(self) -> FloatArray:
        """Factors of ``user_ids_`` from clicks; products with ``item_vectors_`` rank items."""
        return self._require_fitted().clicks().users[1:]

    @property
    def item_vectors_(self) -> FloatArray:
        """Factors of ``item_ids_`` from clicks."""
        return self._require_fitted().clicks().items[1:]

    def set_params(self, **params: Any) -> Self:
        """Set parameters, including the parameters of `interactions` if it is True.

        Parameters
        ----------
        **params : Any
            Parameters of this recommender, and parameters of its parts such as
            ``interactions__ridge``.

        Returns
        -------
        self
        """
        if self.interactions is True and any(name.startswith("interactions__") for name in params):
            self.interactions = Interactions()
        changed: Self = super().set_params(**params)
        return changed

    def _method(self) -> Method:
        if isinstance(self.method, Method):
            return self.method
        check_choice("method", self.method, MethodName)
        return _METHODS[self.method]()

    def _check_parameters(self) -> Method:
        if self.n_components is not None:
            check_positive("n_components", self.n_components, integer=True)
        check_choice("task", self.task, Task)
        if not isinstance(self.interactions, bool | Interactions):
            msg = f"interactions: must be a bool or Interactions(...), got {self.interactions!r}"
            raise ValueError(msg)
        if not isinstance(self.time_features, bool | TimeFeatures):
            msg = f"time_features: must be a bool or TimeFeatures(...), got {self.time_features!r}"
            raise ValueError(msg)
        self._interaction_settings().check()
        self._time_settings().check()
        check_choice("history_features", self.history_features, False, True, "users")
        if self.history_features is not False and self.task == "clicks":
            msg = (
                'history_features: task="clicks" does not use it, because click models always '
                "learn from histories"
            )
            raise ValueError(msg)
        method = self._method()
        method.check()
        if self.time_features is not False:
            if self.task == "clicks":
                msg = 'time_features: task="clicks" does not use it and predicts no ratings'
                raise ValueError(msg)
            if not method.has_times:
                msg = f'time_features: method="{method.name}" does not use it; use "variational"'
                raise ValueError(msg)
        return method
