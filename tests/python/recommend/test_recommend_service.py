"""The service in the serving guide, and requests from several threads to one model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dualgap import OrdinalRecommender
from dualgap.datasets import synthetic_ratings
from dualgap.recommend import Interactions

PAGE = Path(__file__).parents[3] / "docs" / "serving.md"


@pytest.fixture(scope="module")
def shop() -> OrdinalRecommender:
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, (60, 40), (900, 2)), axis=0)
    settings = Interactions(n_components=8, max_iter=4)
    model = OrdinalRecommender(task="clicks", interactions=settings, random_state=0)
    return model.set_params(n_jobs=1).fit(pairs)


@pytest.mark.filterwarnings("ignore:Using .httpx. with .starlette")
def test_the_service_of_the_guide_answers_requests(
    shop: OrdinalRecommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    from fastapi.testclient import TestClient

    shop.save(tmp_path / "shop")
    monkeypatch.chdir(tmp_path)
    code = PAGE.read_text("utf-8").split("```py\n")[1].split("```")[0]
    service: dict[str, Any] = {"__name__": "service"}
    exec(compile(code, str(PAGE), "exec"), service)
    client = TestClient(service["app"])
    assert client.get("/users/3?n=4").json() == shop.recommend(3, 4)["item"].tolist()
    assert client.get("/users/-5").status_code == 404
    found = client.post("/baskets?n=5", json=[1, 2, 10**6]).json()
    assert found == shop.recommend(ratings=[(-1, 1), (-1, 2)], n=5)["item"].tolist()
    assert not {1, 2} & set(found)
    assert client.post("/baskets", json=[10**6]).status_code == 422


def test_threads_can_share_a_model(shop: OrdinalRecommender, tmp_path: Path) -> None:
    shop.save(tmp_path / "shop")

    def answer(model: OrdinalRecommender, request: int) -> pd.DataFrame:
        if request % 3 == 0:
            return model.recommend(request % 60, 5)
        new = [(-1, request % 40), (-1, (request + 7) % 40)]
        if request % 3 == 1:
            return model.recommend(ratings=new, n=5)
        return model.fold_in(new).recommend(-1, 5)

    expected = [answer(shop, request) for request in range(60)]
    # Several threads compute the parts that a model computes at its first request.
    model = OrdinalRecommender.load(tmp_path / "shop").set_params(n_jobs=1)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda request: answer(model, request), range(60)))
    for one, two in zip(found, expected, strict=True):
        pd.testing.assert_frame_equal(one, two)


def blocks(start: str) -> str:
    """The first code block of the guide that begins with `start`."""
    found = [code.split("```")[0] for code in PAGE.read_text("utf-8").split("```py\n")[1:]]
    return next(code for code in found if code.startswith(start))


def rank_by_factors(shop: OrdinalRecommender, user: int) -> list[int]:
    scores = shop.item_vectors_ @ shop.user_vectors_[shop.user_ids_.get_loc(user)]
    return list(shop.item_ids_[np.argsort(-scores)])


@pytest.mark.parametrize("library", ["hnswlib", "faiss"])
def test_an_index_of_the_guide_ranks_by_the_factors(shop: OrdinalRecommender, library: str) -> None:
    pytest.importorskip(library)
    user = 7
    names: dict[str, Any] = {"model": shop, "user": user}
    code = blocks(f"import {library}").replace("k=100", "k=15").replace(", 100)", ", 15)")
    exec(compile(code, str(PAGE), "exec"), names)
    wanted = rank_by_factors(shop, user)[:15]
    assert list(names["candidates"]) == wanted
    if library == "hnswlib":
        chosen = shop.recommend(user, 10, items=wanted)
        pd.testing.assert_frame_equal(names["best"], chosen)


def test_scores_of_the_factors_are_inner_products_over_their_deviation() -> None:
    clicks = synthetic_ratings(4000, 100, 80)[["user", "item"]]
    factors = OrdinalRecommender(
        task="clicks", interactions=Interactions(blend=False), random_state=0
    ).fit(clicks)
    for row, user in enumerate(factors.user_ids_[:5]):
        products = factors.item_vectors_ @ factors.user_vectors_[row]
        scores = factors.predict(user, factors.item_ids_)
        np.testing.assert_allclose(scores, products / products.std(), rtol=1e-5, atol=1e-5)
