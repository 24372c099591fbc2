"""Recommendation by ordinal regression on multi-output factorization machines."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dualgap._choices import MethodName, Reduction, check_choice
from dualgap._estimator import Estimator, relative_gap
from dualgap._npz import refused_as
from dualgap._validation import FloatArray, check_positive
from dualgap.metrics import ndcg_at_k, rmse
from dualgap.recommend._conditional_gradient import ConditionalGradient
from dualgap.recommend._factors import expected_level, level_probabilities, top_columns
from dualgap.recommend._file import State, read_state, write_state
from dualgap.recommend._method import Fitted, Method, Task
from dualgap.recommend._ratings import (
    FeaturesLike,
    Indexed,
    RatingsLike,
    Sides,
    Triples,
    codes,
    find_levels,
    history_rows,
    list_ids,
    read_features,
    read_ids,
    read_ratings,
    unique_ids,
    unit_rows,
)
from dualgap.recommend._variational import Variational

__all__ = ["OrdinalRecommender"]

_METHODS: dict[str, type[Method]] = {kind.name: kind for kind in (Variational, ConditionalGradient)}


@dataclass(kw_only=True, eq=False, repr=False)
class OrdinalRecommender(Estimator):
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
    method : {"variational", "conditional-gradient"}, Variational or ConditionalGradient, \
            default="variational"
        How the machine is fitted: a name for the defaults, or an object with the parameters of that
        method. `Variational` gives the best predictions but has no certificate;
        `ConditionalGradient` grows the basis one vector at a time, with a duality gap.
    history_features : {False, True, "users"}, default=False
        Use the set of items that a user has rated as features of the user, and the set of users who
        rated an item as features of the item; "users" for the former alone.
    levels : sequence of float, optional
        All possible ratings; by default those that occur.
    user_column, item_column, rating_column : str
        Names of the columns when ratings come as a DataFrame.
    random_state : int, RandomState or None, default=None
        Seed.
    n_jobs : int, optional
        Number of threads; None and -1 mean all cores. The model does not depend on it.
    verbose : int, default=0
        Print a line per epoch on stderr, at most five a second.
    callback : callable, optional
        Called after each epoch as ``callback(epoch, seconds, objective, dual_objective)``, with NaN
        for a bound that is not known; a true return value stops the fit. Over several models epochs
        and seconds go on.

    Attributes
    ----------
    user_ids_, item_ids_ : pandas.Index
        Known ids.
    levels_ : ndarray
        Rating levels in increasing order.
    n_components_ : int
        Largest number of bases in use among the models.
    objective_ : float
        Objective of the (last) model.
    dual_objective_, duality_gap_, null_objective_ : float or None
        A lower bound on the objective of any machine within the radius, its distance from
        ``objective_``, and the objective of the null model; None for `Variational`, which knows no
        bound.
    relative_gap_ : float or None
        ``duality_gap_ / objective_``, what ``tol`` is compared with; None for `Variational`.
    certificate_ : str
        What the bound is worth: for `Variational` "none", for `ConditionalGradient` as in the
        polynomial models.
    converged_ : bool or None
        Whether the gap reached ``tol``; None for `Variational`.
    n_iter_ : int
        Number of epochs of all models together.
    history_ : dict of ndarray
        Per epoch: epoch, seconds, objective, dual_objective, gap (NaN where no bound is known); for
        `Variational` also model (its number), for `ConditionalGradient` n_components and, with
        validation ratings, validation_loss and validation_score.

    Notes
    -----
    An unknown user or item is treated as an average one: what the model knows of the other side
    decides.
    """

    n_components: int = field(default=8, kw_only=False)
    reduction: Reduction = "mcrank"
    method: MethodName | Variational | ConditionalGradient = "variational"
    history_features: bool | Literal["users"] = False
    levels: Sequence[float] | None = None
    user_column: str = "user"
    item_column: str = "item"
    rating_column: str = "rating"

    user_ids_: pd.Index[Any] = field(init=False)
    item_ids_: pd.Index[Any] = field(init=False)
    levels_: FloatArray = field(init=False)
    n_components_: int = field(init=False)
    dual_objective_: float | None = field(init=False)
    duality_gap_: float | None = field(init=False)
    relative_gap_: float | None = field(init=False)
    null_objective_: float | None = field(init=False)
    certificate_: str = field(init=False)
    converged_: bool | None = field(init=False)

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
        method = self._check_parameters()
        if validation is not None and not method.validates:
            msg = 'validation: only method="conditional-gradient" chooses its size on it'
            raise ValueError(msg)
        triples = read_ratings(ratings, self._columns())
        users = read_features(user_features, "user_features")
        items = read_features(item_features, "item_features")
        self.user_ids_ = unique_ids(triples.users, users.ids)
        self.item_ids_ = unique_ids(triples.items, items.ids)
        self.levels_ = find_levels(triples.values, self.levels, self.reduction == "mcrank")
        rated = self._indexed(triples)
        shape = (len(self.user_ids_), len(self.item_ids_))
        self._seen = history_rows(rated.users, rated.items, shape)
        user_rows, item_rows = users.rows(self.user_ids_), items.rows(self.item_ids_)
        if self.history_features:
            user_rows.append(self._seen)
        if self.history_features is True:
            item_rows.append(sp.csr_array(self._seen.T))
        sides = Sides(shape, (unit_rows(user_rows), unit_rows(item_rows)))
        held_out = None
        if validation is not None:
            held_out = self._indexed(read_ratings(validation, self._columns(), name="validation"))
        self._store(method.run(self._task(), rated, sides, held_out))
        return self

    def _indexed(self, triples: Triples) -> Indexed:
        users = codes(self.user_ids_, triples.users)
        return Indexed(users, codes(self.item_ids_, triples.items), triples.values)

    def _store(self, fitted: Fitted) -> None:
        self._models = fitted.models
        self.objective_, self.dual_objective_ = fitted.objective, fitted.dual_objective
        self.duality_gap_ = self.relative_gap_ = None
        if fitted.dual_objective is not None:
            self.duality_gap_ = fitted.objective - fitted.dual_objective
            self.relative_gap_ = relative_gap(self.duality_gap_, self.objective_)
        self.certificate_ = fitted.certificate
        self.null_objective_, self.converged_ = fitted.null_objective, fitted.converged
        self.history_ = fitted.history
        self.n_iter_ = len(fitted.history["epoch"])
        self.n_components_ = max(model.n_bases() for model in fitted.models)

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
            top = top_columns(scores, n)
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
        top = top_columns(scores, n)
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
        parameters = self.get_params(deep=False)
        for name in ("callback", "random_state"):
            del parameters[name]
        method = self._method()
        parameters["method"] = {"name": method.name, **method.get_params()}
        if self.levels is not None:
            parameters["levels"] = np.asarray(self.levels, dtype=float).tolist()
        state = State(
            parameters=parameters,
            user_ids=self.user_ids_,
            item_ids=self.item_ids_,
            levels=self.levels_,
            n_components=self.n_components_,
            seen=self._seen,
            fitted=Fitted(
                models=self._models,
                history=self.history_,
                objective=self.objective_,
                dual_objective=self.dual_objective_,
                null_objective=self.null_objective_,
                converged=self.converged_,
                certificate=self.certificate_,
            ),
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
            method = _METHODS[state.parameters["method"].pop("name")]
            model = cls(**{**state.parameters, "method": method(**state.parameters["method"])})
            model._check_parameters()
            state.check(len(state.levels) - 1 if model.reduction == "mcrank" else 1)
        model.user_ids_, model.item_ids_ = state.user_ids, state.item_ids
        model.levels_, model._seen = state.levels, state.seen
        model._store(state.fitted)
        return model

    def _task(self) -> Task:
        return Task(
            reduction=self.reduction,
            levels=self.levels_,
            n_components=int(self.n_components),
            random_state=self.random_state,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            callback=self.callback,
        )

    def _method(self) -> Method:
        if isinstance(self.method, Method):
            return self.method
        check_choice("method", self.method, MethodName)
        return _METHODS[self.method]()

    def _check_parameters(self) -> Method:
        check_positive("n_components", self.n_components, integer=True)
        check_choice("reduction", self.reduction, Reduction)
        check_choice("history_features", self.history_features, False, True, "users")
        method = self._method()
        method.check()
        return method

    def _columns(self) -> tuple[str, str, str]:
        return self.user_column, self.item_column, self.rating_column

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
