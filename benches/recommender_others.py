"""Rating prediction compared with other packages, on the same folds of MovieLens.

    python benches/recommender_others.py official [N]
                                         # our methods on the folds u1 to u5, or on fold N
    python benches/recommender_others.py surprise [N]
                                         # our methods, SVD and SVD++ on Surprise's folds
    python benches/recommender_others.py myfm [SEED]
                                         # our methods, myFM and libFM on random splits
    python benches/recommender_others.py million [NAME]  # these methods on MovieLens 1M, 90/10
    python benches/recommender_others.py sparse [DATA]   # dualgap and biases on few ratings per id
    python benches/recommender_others.py means           # means over folds, for one instruction set

Packages that are missing are skipped (pip install scikit-surprise myfm). libFM 1.4.2 is part of
pywFM 0.9.0 on PyPI, as a program for musl. The environment variable LIBFM is the command that runs
it, for example "lib/libc.so --library-path lib ./libFM" with the libc.so of Debian's musl, and
libstdc++.so.6 and libgcc_s.so.1 from a musllinux wheel (pandas 2.2.2). Without LIBFM, it is
skipped. All packages fit a fold in the same run, and all predictions are clipped to [1, 5] and
scored by this script. MovieLens 1M is movielens_1m.npz in the folder DUALGAP_DATA. Generated
ratings replace a missing set.
"""

from __future__ import annotations

import itertools
import logging
import os
import shlex
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _data import movielens, ratings_of
from _record import Table

from dualgap import _core
from dualgap.metrics import ndcg_at_k, rmse
from dualgap.recommend import OrdinalRecommender, Variational
from dualgap.recommend.comparison import split_ratings

Predict = Callable[[pd.DataFrame, pd.DataFrame, int], np.ndarray]
MEAN = "mean"


def ours(**settings: Any) -> Predict:
    def predict(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> np.ndarray:
        model = OrdinalRecommender(random_state=seed, interactions=False, **settings).fit(train)
        return model.predict(test["user"], test["item"], unknown="ignore")

    return predict


OURS = {
    "ours, ids": ours(),
    "ours, history": ours(history_features=True),
}


def measure(
    table: Table, methods: dict[str, Predict], train: pd.DataFrame, test: pd.DataFrame, fold: int
) -> None:
    truth, users = test["rating"].to_numpy(), test["user"].to_numpy()
    for name, predict in methods.items():
        start = time.perf_counter()
        predicted = np.clip(predict(train, test, fold), 1.0, 5.0)
        seconds = time.perf_counter() - start
        table.add(
            method=name,
            fold=fold,
            rmse=rmse(truth, predicted),
            mae=float(np.abs(truth - predicted).mean()),
            ndcg5=ndcg_at_k(truth, predicted, 5, groups=users, ties="random", random_state=0),
            seconds=seconds,
        )


def official(only: str | None = None) -> None:
    """Measure our methods on the folds u1 to u5 of MovieLens 100K, which its script mku.sh makes.

    Fold i tests on the ith fifth of the ratings.
    """
    data = movielens()
    assert data.items is not None
    assert data.users is not None
    genres = data.items.set_index("item")["genres"].str.get_dummies("|").astype(bool)
    people = data.users.set_index("user").drop(columns="zip_code")
    tables = {"user_features": people, "item_features": genres.astype("category")}

    def with_tables(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> np.ndarray:
        model = OrdinalRecommender(random_state=seed, interactions=False, history_features=True)
        model.fit(train, **tables)
        return model.predict(test["user"], test["item"], unknown="ignore")

    longer = ours(history_features=True, method=Variational(max_iter=60, tol=0.0))
    methods = {
        **OURS,
        "ours, history, 60 sweeps": longer,
        "ours, history and features": with_tables,
    }
    table, ratings = Table("recommender-official", "method", "fold"), data.ratings
    for fold, test in enumerate(np.split(np.arange(len(ratings)), 5), start=1):
        if only is not None and fold != int(only):
            continue
        held = ratings.iloc[test]
        measure(table, methods, ratings.drop(held.index), held, fold)


def surprise_folds(ratings: pd.DataFrame) -> Iterator[tuple[Any, pd.DataFrame, pd.DataFrame]]:
    """Yield the folds of Surprise's examples/benchmark.py: KFold(random_state=0)."""
    from surprise import Dataset, Reader
    from surprise.model_selection import KFold

    columns = ["user", "item", "rating"]
    data = Dataset.load_from_df(ratings[columns], Reader(rating_scale=(1, 5)))
    for trainset, testset in KFold(n_splits=5, random_state=0).split(data):
        test = pd.DataFrame(testset, columns=columns)
        rows = [
            (trainset.to_raw_uid(user), trainset.to_raw_iid(item), rating)
            for user, item, rating in trainset.all_ratings()
        ]
        yield trainset, pd.DataFrame(rows, columns=columns), test


def surprise(only: str | None = None) -> None:
    if find_spec("surprise") is None:
        print("surprise: not installed; skipped")
        return
    from surprise import SVD, SVDpp

    table = Table("recommender-surprise", "method", "fold")
    ratings = ratings_of("movielens_100k")
    for fold, (trainset, train, test) in enumerate(surprise_folds(ratings), start=1):
        if only is not None and fold != int(only):
            continue

        def theirs(algorithm: Any, trainset: Any = trainset) -> Predict:
            def predict(_: pd.DataFrame, held: pd.DataFrame, seed: int) -> np.ndarray:
                fitted = algorithm(seed).fit(trainset)
                pairs = zip(held["user"], held["item"], strict=True)
                return np.array([fitted.predict(user, item).est for user, item in pairs])

            return predict

        others = {
            "Surprise, SVD": theirs(lambda seed: SVD(random_state=seed)),
            "Surprise, SVD++": theirs(lambda seed: SVDpp(random_state=seed, cache_ratings=True)),
        }
        measure(table, {**OURS, **others}, train, test, fold)


def myfm_predict(history: bool) -> Predict:
    """Return a function that runs myFM: ordered probit by Gibbs sampling, rank 5, 300 samples.

    With `history`, users and items also have their histories as features.
    """

    def predict(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> np.ndarray:
        import myfm

        ids = [pd.Index(train[name].unique()) for name in ("user", "item")]
        places = tuple(
            known.get_indexer(train[name])
            for known, name in zip(ids, ("user", "item"), strict=True)
        )
        rated = sp.csr_array((np.ones(len(train)), places), [len(known) for known in ids])
        sides = []
        for own in (rated, sp.csr_array(rated.T)):
            parts = [sp.eye_array(own.shape[0])]
            if history:
                parts.append(sp.diags_array(1.0 / np.sqrt(own.sum(axis=1))) @ own)
            block = sp.hstack(parts)
            # The last row belongs to unknown ids.
            block = sp.vstack([block, sp.csr_array((1, block.shape[1]))])
            sides.append((sp.csr_matrix(block), [part.shape[1] for part in parts]))

        def blocks(table: pd.DataFrame) -> list[Any]:
            found = []
            for known, name, (block, _) in zip(ids, ("user", "item"), sides, strict=True):
                at = known.get_indexer(table[name])
                rows = np.where(at < 0, len(known), at).astype(np.int64)
                found.append(myfm.RelationBlock(rows, block))
            return found

        model = myfm.MyFMOrderedProbit(rank=5, random_seed=seed)
        levels = train["rating"].to_numpy(dtype=np.int64) - 1
        groups = [width for _, widths in sides for width in widths]
        settings = {"n_iter": 300, "n_kept_samples": 290, "group_shapes": groups}
        model.fit(None, levels, X_rel=blocks(train), **settings)
        return model.predict_proba(None, X_rel=blocks(test)) @ np.arange(1.0, 6.0)

    return predict


def myfm(only: str | None = None) -> None:
    table = Table("recommender-myfm", "method", "fold")
    ratings = ratings_of("movielens_100k")
    methods = {**OURS, **samplers()}
    for seed in range(3) if only is None else [int(only)]:
        train, _, test = split_ratings(ratings, seed)
        measure(table, methods, train, test, seed)


def libfm_predict(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> np.ndarray:
    """Run libFM: regression by Gibbs sampling, dimension 20, 300 iterations, only ids."""
    users, items = (pd.Index(train[name].unique()) for name in ("user", "item"))
    with tempfile.TemporaryDirectory() as folder:
        for name, table in (("train", train), ("test", test)):
            u, i = users.get_indexer(table["user"]), items.get_indexer(table["item"])
            lines = (
                f"{rating:g}{f' {a}:1' if a >= 0 else ''}{f' {len(users) + b}:1' if b >= 0 else ''}"
                for rating, a, b in zip(table["rating"], u, i, strict=True)
            )
            Path(folder, name).write_text("\n".join(lines) + "\n")
        command = [
            *shlex.split(os.environ["LIBFM"]),
            "-task",
            "r",
            "-method",
            "mcmc",
            "-dim",
            "1,1,20",
        ]
        command += ["-train", "train", "-test", "test", "-out", "out", "-iter", "300"]
        command += ["-init_stdev", "0.1", "-seed", str(seed)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return np.loadtxt(Path(folder, "out"))


def samplers() -> dict[str, Predict]:
    found: dict[str, Predict] = {"libFM, ids": libfm_predict} if "LIBFM" in os.environ else {}
    if find_spec("myfm") is None:
        print("myfm: not installed; skipped")
        return found
    histories = {"myFM, ids": False, "myFM, history": True}
    return found | {name: myfm_predict(history=own) for name, own in histories.items()}


def million(only: str | None = None) -> None:
    train, _, test = split_ratings(ratings_of("movielens_1m"), 0, (0.9, 0.0))
    methods = {**OURS, **samplers()}
    chosen = {name: each for name, each in methods.items() if only in (None, name)}
    measure(Table("recommender-million-others", "method", "fold"), chosen, train, test, 0)


def drawn(
    n_users: int,
    n_items: int,
    levels: int,
    means: tuple[float, float],
    spreads: tuple[float, float, float, float],
    tail: float = 1.0,
    longest: int | None = None,
) -> pd.DataFrame:
    """Draw 1 to 4 ratings per user, or 2 to `longest`, of items that follow Zipf's law.

    A rating is the rounded sum of the mean, the popularity of the item times its weight (together
    `means`), and four terms whose standard deviations are `spreads`: of the user, of the item, of
    their tastes, and noise.
    """
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 5, n_users)
    if longest is not None:
        counts = np.minimum(1 + rng.geometric(0.45, n_users), longest)
    popularity = -tail * np.log(np.arange(1.0, n_items + 1.0))
    shares = np.exp(popularity) / np.exp(popularity).sum()
    users = np.repeat(np.arange(n_users), counts)
    items = rng.choice(n_items, len(users), p=shares)
    rows = pd.DataFrame({"user": users, "item": items}).drop_duplicates(ignore_index=True)
    u, i = rows["user"].to_numpy(), rows["item"].to_numpy()
    of_users, of_items, of_tastes, noise = spreads
    values = means[0] + means[1] * ((popularity - popularity.mean()) / popularity.std())[i]
    values += of_users * rng.standard_normal(n_users)[u]
    values += of_items * rng.standard_normal(n_items)[i]
    tastes = rng.standard_normal((n_users, 4))[u] * rng.standard_normal((n_items, 4))[i]
    values += of_tastes * tastes.sum(axis=1) / 2.0 + noise * rng.standard_normal(len(rows))
    rows["rating"] = np.clip(np.round(values), 1, levels)
    return rows


def few_per_user(ratings: pd.DataFrame) -> pd.DataFrame:
    """Keep 1 to 5 random ratings of each user."""
    rng = np.random.default_rng(0)
    shuffled = ratings.iloc[rng.permutation(len(ratings))]
    kept = rng.integers(1, 6, int(ratings["user"].max()) + 1)
    rank = shuffled.groupby("user").cumcount().to_numpy()
    return shuffled[rank < kept[shuffled["user"]]].reset_index(drop=True)


def sparse_sets() -> dict[str, Callable[[], pd.DataFrame]]:
    def made(*settings: Any, **more: Any) -> Callable[[], pd.DataFrame]:
        return lambda: drawn(*settings, **more)

    return {
        "books, 1 to 10": made(20_000, 30_000, 10, (7.5, 0.0), (1.0, 0.6, 0.3, 1.4)),
        "long tail of users": made(
            6_000, 9_000, 10, (7.5, 0.0), (0.9, 0.8, 0.3, 1.4), tail=1.3, longest=60
        ),
        "books, 1 to 5": made(6_000, 9_000, 5, (3.9, 0.0), (0.5, 0.4, 0.2, 0.8)),
        "popular is good": made(6_000, 9_000, 5, (3.5, 0.4), (0.3, 0.3, 0.3, 0.9)),
        "users differ": made(6_000, 9_000, 10, (6.0, 0.0), (1.5, 0.3, 0.1, 1.8), tail=0.5),
        "tastes differ": made(6_000, 600, 5, (3.6, 0.0), (0.3, 0.4, 0.9, 0.7)),
        "ML-100k, 1 to 5 a user": lambda: few_per_user(ratings_of("movielens_100k")),
        "ML-1M, 1 to 5 a user": lambda: few_per_user(ratings_of("movielens_1m")),
    }


def biases(train: pd.DataFrame, test: pd.DataFrame, ridges: tuple[float, float]) -> np.ndarray:
    """Predict the mean plus a ridge regression on the user and the item."""
    total, n, sums = train["rating"].mean(), {}, {}
    for side in ("user", "item"):
        n[side] = int(max(train[side].max(), test[side].max())) + 1
        sums[side] = np.zeros(n[side])
    for _ in range(10):
        for side, other, ridge in zip(
            ("item", "user"), ("user", "item"), ridges[::-1], strict=True
        ):
            rest = train["rating"].to_numpy() - total - sums[other][train[other]]
            counts = np.bincount(train[side], minlength=n[side])
            sums[side] = np.bincount(train[side], rest, n[side]) / (counts + ridge)
    predicted = total + sums["user"][test["user"]] + sums["item"][test["item"]]
    return np.clip(predicted, train["rating"].min(), train["rating"].max())


def tuned_biases(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """Choose both ridges on a tenth of the ratings, then fit the biases to all of them."""
    rest, _, validation = split_ratings(train, 99, (0.9, 0.0))
    grid = list(itertools.product(2.0 ** np.arange(-1, 7), repeat=2))
    errors = [rmse(validation["rating"], biases(rest, validation, pair)) for pair in grid]
    return biases(train, test, grid[int(np.argmin(errors))])


def sparse(only: str | None = None) -> None:
    """Compare default settings of dualgap with biases, on three splits (80/20) of each set."""
    table = Table("recommender-sparse", "data")
    for data, load in sparse_sets().items():
        if only is not None and data != only:
            continue
        ratings, errors, seconds = load(), [], []
        for seed in range(3):
            train, _, test = split_ratings(ratings, seed, (0.8, 0.0))
            start = time.perf_counter()
            predicted = ours()(train, test, seed)
            seconds.append(time.perf_counter() - start)
            both = predicted, tuned_biases(train, test)
            errors.append([rmse(test["rating"], each) for each in both])
        own, other = np.transpose(errors)
        table.add(
            data=data,
            n_ratings=len(ratings),
            rmse=own.mean(),
            bias_rmse=other.mean(),
            difference=(own - other).mean(),
            difference_error=(own - other).std(ddof=1) / 3**0.5,
            seconds=np.median(seconds),
        )


def means() -> None:
    for name in ("recommender-official", "recommender-surprise", "recommender-myfm"):
        table = Table(name, "method", "fold")
        rows = [
            row for row in table.read() if row["fold"] != MEAN and row["simd"] in ("", _core.SIMD)
        ]
        for method in dict.fromkeys(row["method"] for row in rows):
            own = [row for row in rows if row["method"] == method]
            cells = {
                metric: np.mean([float(row[metric]) for row in own])
                for metric in ("rmse", "mae", "ndcg5")
            }
            # The seconds are from the fastest fold, because other work ran during some
            # measurements.
            seconds = min(float(row["seconds"]) for row in own)
            table.add(method=method, fold=MEAN, **cells, seconds=seconds)


if __name__ == "__main__":
    logging.getLogger("dualgap").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    actions: dict[str, Callable[..., None]] = {
        "official": official,
        "surprise": surprise,
        "myfm": myfm,
        "means": means,
        # After a missing file, all results go elsewhere, so commands with MovieLens 1M come last.
        "sparse": sparse,
        "million": million,
    }
    if len(sys.argv) > 1:
        actions[sys.argv[1]](*sys.argv[2:])
    else:
        for action in actions.values():
            action()
