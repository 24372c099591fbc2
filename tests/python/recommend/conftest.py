"""Ratings and tables that the recommender's tests share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from recommenders import N_ITEMS, N_USERS, quick

from dualgap import OrdinalRecommender
from dualgap.datasets import synthetic_ratings


@pytest.fixture(scope="session")
def ratings() -> pd.DataFrame:
    return synthetic_ratings(3000, N_USERS, N_ITEMS, rank=2).drop(columns="timestamp")


@pytest.fixture(scope="session")
def small(ratings: pd.DataFrame) -> pd.DataFrame:
    return ratings.iloc[:800]


@pytest.fixture(scope="session")
def model(ratings: pd.DataFrame) -> OrdinalRecommender:
    return quick().fit(ratings)


@pytest.fixture(scope="session")
def user_table() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    n = N_USERS + 10
    return pd.DataFrame({"age": rng.normal(30.0, 9.0, n), "job": rng.choice(["a", "b", "c"], n)})


@pytest.fixture(scope="session")
def item_table() -> sp.csr_array:
    return sp.random_array((N_ITEMS + 5, 7), density=0.4, rng=2, format="csr")
