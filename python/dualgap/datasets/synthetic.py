"""Generator of synthetic ratings."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["synthetic_ratings"]


def synthetic_ratings(
    n_ratings: int,
    n_users: int,
    n_items: int,
    rank: int = 5,
    random_state: int | np.random.Generator | None = 0,
) -> pd.DataFrame:
    """Draw ratings from 1 to 5 from a low-rank model with biases and noise.

    The popularity of items and the activity of users are long-tailed. No user rates an item twice.
    The model is:

        rating = round(3.5 + b_user + b_item + <p_user, q_item> + noise), clipped to 1..5.

    Parameters
    ----------
    n_ratings : int
        Number of rows, at most ``n_users * n_items``.
    n_users : int
        Number of users, with ids from 0; some may have no rating.
    n_items : int
        Number of items, with ids from 0; some may have no rating.
    rank : int, default=5
        Length of the vectors p and q; 0 gives a model with biases only.
    random_state : int, numpy.random.Generator or None, default=0
        Seed of the random numbers.

    Returns
    -------
    pandas.DataFrame
        Columns ``user``, ``item``, ``rating`` and ``timestamp``; the rows are in random order.
    """
    for argument, value, minimum in (
        ("n_users", n_users, 1),
        ("n_items", n_items, 1),
        ("n_ratings", n_ratings, 1),
        ("rank", rank, 0),
    ):
        if value < minimum:
            raise ValueError(f"{argument} must be at least {minimum}, got {value!r}")
    if n_ratings > n_users * n_items:
        raise ValueError(
            f"n_ratings must be at most n_users * n_items = {n_users * n_items}, got {n_ratings}"
        )
    rng = np.random.default_rng(random_state)
    # With these power laws, the most popular items and the most active users have about as large a
    # share of the ratings as in MovieLens 100k and 1M.
    user_weight = (10.0 + rng.permutation(n_users)) ** -0.5
    item_weight = (10.0 + rng.permutation(n_items)) ** -0.6
    pairs = np.empty(0, dtype=np.int64)
    flatness = 1.0
    while len(pairs) < n_ratings:
        users = _draw(rng, user_weight**flatness, n_ratings)
        items = _draw(rng, item_weight**flatness, n_ratings)
        pairs = np.sort(np.concatenate((pairs, users * n_items + items)))
        # Not np.unique: since NumPy 2.3 it hashes integers, which takes five times longer here.
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        # In a dense table, almost all popular pairs are already drawn. With flatter weights, the
        # next draws contain more new pairs.
        flatness *= 0.8
    user, item = np.divmod(rng.permutation(pairs)[:n_ratings], n_items)

    latent = 3.5 + rng.normal(0.0, 0.4, n_users)[user] + rng.normal(0.0, 0.5, n_items)[item]
    for _ in range(rank):
        p, q = rng.normal(0.0, 1.0, n_users), rng.normal(0.0, 0.5 / np.sqrt(rank), n_items)
        latent += p[user] * q[item]
    latent += rng.normal(0.0, 0.8, n_ratings)
    return pd.DataFrame(
        {
            "user": user,
            "item": item,
            "rating": np.clip(np.rint(latent), 1.0, 5.0),
            "timestamp": rng.integers(850_000_000, 900_000_000, n_ratings),
        }
    )


def _draw(
    rng: np.random.Generator, weight: NDArray[np.floating], n: int
) -> NDArray[np.signedinteger]:
    return rng.choice(len(weight), n, p=weight / weight.sum())
