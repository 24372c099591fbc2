"""Fits of recommenders: certificates, seeds, threads, callbacks, interruption."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from recommenders import (
    N_ITEMS,
    N_USERS,
    PENALTIES,
    UNKNOWN,
    all_pairs,
    assert_same,
    greedy,
    machines,
    quick,
)
from repeats import trials
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from dualgap import _core
from dualgap.metrics import rmse
from dualgap.recommend import ConditionalGradient, OrdinalRecommender, Variational
from dualgap.recommend._rating_model import default_n_components
from dualgap.recommend._variational import _best_power, _needs_trial
from dualgap.recommend.comparison import split_ratings


@pytest.mark.parametrize(("n_users", "n_ratings", "expected"), [(3, 30, 4 * 3), (20, 6, 6)])
def test_the_number_of_bases_is_limited_by_the_ratings(
    n_users: int, n_ratings: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[int] = []
    fit_variational = _core.fit_variational

    def spy(users: Any, items: Any, targets: Any, settings: Any) -> Any:
        handed.append(settings["n_components"])
        return fit_variational(users, items, targets, settings)

    monkeypatch.setattr(_core, "fit_variational", spy)
    rows = np.arange(n_ratings)
    ratings = (rows % n_users, rows // 3 if n_users == 3 else rows, 1.0 + rows % 5)
    method = Variational(n_models=1, max_iter=2)
    OrdinalRecommender(500, method=method, interactions=False).fit(ratings)
    assert handed == [expected]


def test_the_default_number_of_bases_grows_with_the_ratings() -> None:
    counts = (1, 50_000, 900_000, 25_000_000)
    assert [default_n_components(n, has_histories=False) for n in counts] == [8, 8, 25, 96]
    assert [default_n_components(n, has_histories=True) for n in counts] == [8, 8, 39, 64]


# --- Conditional gradient ---

# Models with few bases do not reach the tolerance.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("task", ["ordinal", "regression"])
def test_gaps_are_consistent_and_bounds_hold_for_larger_models(
    small: pd.DataFrame, penalty: str, task: str
) -> None:
    settings = {"penalty": penalty, "task": task, "radius": 20.0}
    brief = greedy(n_components=2, **settings).fit(small)
    longer = greedy(n_components=8, **settings).fit(small)
    for fitted in (brief, longer):
        history = fitted.history_
        assert (history["gap"] >= 0.0).all()
        np.testing.assert_allclose(
            history["gap"], history["objective"] - history["dual_objective"], rtol=1e-9
        )
        assert (np.diff(history["objective"]) <= 1e-6 * history["objective"][0]).all()
        assert fitted.duality_gap_ == fitted.objective_ - fitted.dual_objective_ >= 0.0
        assert fitted.converged_ == (fitted.duality_gap_ <= 1e-4 * fitted.null_objective_)
        assert fitted.n_iter_ == len(history["epoch"])
        assert fitted.n_components_ <= fitted.n_components
    assert longer.objective_ < brief.objective_
    # A lower bound holds for every model.
    assert brief.history_["dual_objective"].max() <= longer.objective_


@pytest.mark.parametrize("penalty", PENALTIES)
def test_validation_picks_the_number_of_bases(ratings: pd.DataFrame, penalty: str) -> None:
    train, validation, _ = split_ratings(ratings, 0)
    fitted = greedy(n_components=8, penalty=penalty, radius=3000.0).fit(
        train, validation=validation
    )
    history = fitted.history_
    best = int(np.argmin(history["validation_loss"]))
    assert fitted.n_components_ == history["n_components"][best]
    assert fitted.n_components_ < 8
    # The recorded loss belongs to the returned model.
    (blocks,) = machines(fitted)
    users = fitted.user_ids_.get_indexer(validation["user"])
    items = fitted.item_ids_.get_indexer(validation["item"])
    outputs = blocks.pairs(
        np.where(users < 0, len(fitted.user_ids_), users),
        np.where(items < 0, len(fitted.item_ids_), items),
    )
    signs = np.where(validation["rating"].to_numpy()[:, np.newaxis] <= fitted.levels_[:-1], 1, -1)
    loss = np.logaddexp(0.0, -signs * outputs).sum(axis=1).mean()
    assert history["validation_loss"][best] == pytest.approx(loss, rel=1e-9)


@pytest.mark.parametrize("with_validation", [True, False])
def test_the_path_of_radii_finds_a_good_radius(
    ratings: pd.DataFrame, with_validation: bool
) -> None:
    train, validation, test = split_ratings(ratings, 0, (0.6, 0.2))
    held_out = validation if with_validation else None

    def error(model: OrdinalRecommender) -> float:
        predicted = model.predict(test["user"], test["item"])
        return float(np.sqrt(np.mean((predicted - test["rating"]) ** 2)))

    fits = [
        OrdinalRecommender(
            4,
            method=ConditionalGradient(reoptimize="output", radius=radius),
            interactions=False,
            random_state=0,
            n_jobs=1,
        ).fit(train, validation=held_out)
        for radius in (None, 20_000.0)
    ]
    # With the largest radius, the model overfits the few ratings.
    assert error(fits[0]) < error(fits[1]) - 0.02
    assert fits[0].duality_gap_ < fits[0].objective_


def test_a_fit_without_a_bound_has_no_gap(small: pd.DataFrame) -> None:
    fitted = quick().fit(small)
    for name in ("dual_objective_", "duality_gap_", "null_objective_", "converged_"):
        assert getattr(fitted, name) is None
    assert set(fitted.history_) == {
        "epoch",
        "seconds",
        "objective",
        "dual_objective",
        "gap",
        "model",
    }
    assert {len(column) for column in fitted.history_.values()} == {fitted.n_iter_} == {16}
    assert np.isnan(fitted.history_["gap"]).all()
    assert fitted.objective_ == fitted.history_["objective"][-1]


def test_a_fit_that_does_not_reach_its_tolerance_warns(small: pd.DataFrame) -> None:
    with pytest.warns(ConvergenceWarning, match=r"gap of .*raise n_components or tol"):
        greedy().fit(small)


# --- Methods and their options ---


@pytest.mark.parametrize("kind", [Variational, ConditionalGradient])
def test_options_of_a_method_are_parameters_of_the_recommender(
    small: pd.DataFrame, kind: Any
) -> None:
    default = OrdinalRecommender(2, method=kind.name, random_state=0).fit(small)
    assert_same(OrdinalRecommender(2, method=kind(), random_state=0).fit(small), default)
    model = OrdinalRecommender(method=kind(radius=7.0))
    assert model.get_params()["method__radius"] == 7.0
    copy = clone(model)
    assert copy.method == model.method
    assert copy.method is not model.method
    assert copy.set_params(method__radius=8.0).method != model.method
    with pytest.raises(ValueError, match="Invalid parameter 'strange'"):
        model.set_params(method__strange=1)


def test_options_without_effect_are_rejected(small: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"^penalty: radius=None does not use it, got 'l1'"):
        quick(penalty="l1").fit(small)
    with pytest.raises(ValueError, match=r'^tempering: task="regression" does not use it'):
        quick(tempering=0.9, task="regression").fit(small)


def test_the_radius_limits_the_output_layer_for_unit_basis_vectors(small: pd.DataFrame) -> None:
    free = quick(n_models=1).fit(small)
    (blocks,) = machines(free)
    scale = len(free.user_ids_) + len(free.item_ids_)
    norm = scale * np.linalg.norm(blocks.output, axis=1).sum()
    (bound,) = machines(quick(n_models=1, radius=norm / 10).fit(small))
    assert scale * np.linalg.norm(bound.output, axis=1).sum() <= norm / 10 * (1 + 1e-9)
    assert_same(quick(n_models=1, radius=norm * 1e3).fit(small), free)


# --- The objective ---

FEATURES: dict[str, Any] = {
    "none": None,
    "genres": lambda n, rng: (rng.random((n, 18)) < 0.15) * 1.0,
    "alike": lambda n, _: np.ones((n, 1)),
    "collinear": lambda n, _: np.column_stack([np.arange(n), np.arange(n) + 1e-7, np.ones(n)]),
    "large": lambda n, _: np.column_stack([1e4 * (np.arange(n) % 7), np.full(n, 1e-3)]),
    "empty": lambda n, _: np.zeros((n, 3)),
    "wide": lambda n, rng: rng.normal(size=(n, n + n // 4)),
    "identity": lambda n, _: np.eye(n),
    "mixed": lambda n, rng: pd.DataFrame(
        {"age": rng.normal(30.0, 9.0, n), "job": rng.choice(["a", "b", "c"], n)}
    ),
}


def feature_tables(kind: str) -> dict[str, Any]:
    if FEATURES[kind] is None:
        return {}
    rng = np.random.default_rng(0)
    tables = {"user_features": N_USERS, "item_features": N_ITEMS}
    made = {name: FEATURES[kind](n, rng) for name, n in tables.items()}
    return {
        name: table if isinstance(table, pd.DataFrame) else sp.csr_array(table)
        for name, table in made.items()
    }


@pytest.mark.parametrize("n_users", [N_USERS, 12])
@pytest.mark.parametrize("history", [False, "users", True])
@pytest.mark.parametrize("task", ["ordinal", "regression"])
@pytest.mark.parametrize("kind", FEATURES)
def test_the_objective_never_rises(
    ratings: pd.DataFrame, kind: str, task: Any, history: Any, n_users: int
) -> None:
    # A third of the items have features, but no ratings.
    some = ratings[(ratings["item"] % 3 > 0) & (ratings["user"] < n_users)].iloc[:700]
    weights = np.random.default_rng(1).uniform(0.1, 3.0, len(some))
    shared = {"task": task, "history_features": history, "max_iter": 12, "tol": 0.0}
    settings = [(1.0, 100.0), (0.01, None)] if n_users == 12 else [(1.0, None), (20.0, 100.0)]
    for ridge, radius in settings[: trials(2)]:
        own = {"radius": radius, "feature_ridge": ridge, "n_models": 1, **shared}
        fitted = quick(**own).fit(some, sample_weight=weights, **feature_tables(kind))
        # After at most five sweeps, the radius applies.
        objective = fitted.history_["objective"][0 if radius is None else 6 :]
        assert (np.diff(objective) <= 1e-10 * np.abs(objective[1:]).max(initial=0.0)).all()
        assert radius or len(fitted.history_["objective"]) > 8


# --- Reproducibility, progress, interruption ---


@pytest.mark.parametrize("make", [quick, greedy])
@pytest.mark.parametrize("extra", [{}, {"history_features": True}, {"task": "regression"}])
def test_the_model_does_not_depend_on_the_threads(
    ratings: pd.DataFrame, small: pd.DataFrame, make: Any, extra: dict[str, Any]
) -> None:
    few = small if make is greedy else ratings
    one, two = (make(n_jobs=n, **extra).fit(few) for n in (1, 2))
    assert_same(one, two)
    assert one.objective_ == two.objective_


def test_a_seed_determines_the_model(small: pd.DataFrame) -> None:
    pairs = all_pairs()
    first = quick(random_state=3).fit(small)
    assert_same(quick(random_state=3).fit(small), first)
    assert_same(quick(random_state=np.random.RandomState(3)).fit(small), first)
    other = quick(random_state=4).fit(small)
    assert np.abs(first.predict(*pairs) - other.predict(*pairs)).max() > 1e-6
    one, two = machines(first)
    assert np.abs(one.users - two.users).max() > 1e-6


def test_predictions_are_averages_over_the_models(small: pd.DataFrame) -> None:
    both = quick().fit(small)
    pairs = all_pairs()
    parts = []
    for machine in machines(both):
        alone = quick().fit(small)
        model = replace(alone._fitted.rating_model, machines=[machine])
        alone._fitted = replace(alone._fitted, rating_model=model)
        parts.append(alone.predict(*pairs))
    np.testing.assert_allclose(both.predict(*pairs), np.mean(parts, axis=0), rtol=1e-12)
    assert both.history_["model"].tolist() == [0] * 8 + [1] * 8
    assert both.history_["epoch"].tolist() == list(range(1, 17))
    assert (np.diff(both.history_["seconds"]) > 0.0).all()


@pytest.mark.parametrize("make", [quick, greedy])
def test_the_callback_stops_the_fit(small: pd.DataFrame, make: Any) -> None:
    calls: list[tuple[int, float, float, float]] = []

    def stop(*arguments: Any) -> bool:
        calls.append(arguments)
        return len(calls) == 2

    fitted = make(callback=stop).fit(small)
    assert len(calls) == 2
    assert [call[0] for call in calls] == [1, 2]
    assert fitted.history_["epoch"].tolist() == [1, 2]
    assert [call[2] for call in calls] == fitted.history_["objective"].tolist()
    assert np.isfinite(fitted.predict([0, UNKNOWN], 1, unknown="ignore")).all()


@pytest.mark.parametrize("make", [quick, greedy])
def test_exceptions_of_the_callback_propagate(small: pd.DataFrame, make: Any) -> None:
    error = LookupError("mine")

    def fail(*_: Any) -> bool:
        raise error

    with pytest.raises(LookupError) as caught:
        make(callback=fail).fit(small)
    assert caught.value is error


def test_verbose_prints_epochs_to_standard_error(
    small: pd.DataFrame, capfd: pytest.CaptureFixture[str]
) -> None:
    quick(verbose=1).fit(small)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("epoch     1 ")


INTERRUPTED = """
import sys
from dualgap.datasets import synthetic_ratings
from dualgap.recommend import OrdinalRecommender, Variational

ratings = synthetic_ratings(300_000, 6000, 3000)
started = lambda epoch, *_: epoch == 1 and print("started", flush=True)
model = OrdinalRecommender(method=Variational(max_iter=10_000), callback=started, random_state=0)
try:
    model.fit(ratings)
except KeyboardInterrupt:
    sys.exit(42)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a process")
def test_ctrl_c_ends_a_fit() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "started\n"
            time.sleep(0.1)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=3.0) == 42
        finally:
            process.kill()


# --- Few ratings per id ---


def drawn(slope: float) -> pd.DataFrame:
    """Draw 1 to 4 ratings per user, on ten levels; popular items are rated higher by `slope`."""
    rng = np.random.default_rng(0)
    n_users, n_items = 2000, 1000
    users = np.repeat(np.arange(n_users), rng.integers(1, 5, n_users))
    shares = 1.0 / np.arange(1, n_items + 1)
    items = rng.choice(n_items, len(users), p=shares / shares.sum())
    rows = pd.DataFrame({"user": users, "item": items}).drop_duplicates(ignore_index=True)
    users, items = rows["user"].to_numpy(), rows["item"].to_numpy()
    values = 7.5 + 1.2 * rng.normal(size=n_users)[users] + 0.6 * rng.normal(size=n_items)[items]
    values += slope * np.log(shares[items]) + 1.2 * rng.normal(size=len(rows))
    rows["rating"] = np.clip(np.round(values), 1.0, 10.0)
    return rows


def biases(train: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """Predict the mean plus shrunken deviations of the user and the item."""
    rest = train["rating"] - train["rating"].mean()
    sums = {side: pd.Series(0.0, train[side].unique()) for side in ("user", "item")}
    for _ in range(5):
        for side, other in (("item", "user"), ("user", "item")):
            errors = (rest - train[other].map(sums[other])).groupby(train[side])
            sums[side] = errors.sum() / (errors.count() + 2.0)
    parts = [test[side].map(sums[side]).fillna(0.0) for side in sums]
    return np.asarray(train["rating"].mean() + sum(parts))


def test_few_ratings_per_id_are_predicted_as_well_as_by_biases() -> None:
    train, _, test = split_ratings(drawn(0.0), 0, (0.8, 0.0))

    method = Variational(n_models=1, max_iter=20)
    model = OrdinalRecommender(1, method=method, random_state=0, interactions=False).fit(train)
    error = rmse(test["rating"], model.predict(test["user"], test["item"], unknown="ignore"))
    assert error < rmse(test["rating"], biases(train, test))


def test_few_ratings_give_the_same_model_on_any_number_of_threads() -> None:
    ratings = drawn(0.0)
    fits = (
        OrdinalRecommender(1, method=Variational(n_models=1), random_state=0, n_jobs=n_jobs)
        for n_jobs in (1, 2)
    )
    assert_same(*(model.fit(ratings) for model in fits))


@pytest.mark.parametrize(
    ("errors", "power"),
    [
        ([], 0.0),
        # The next trial failed.
        ([2.0], 0.0),
        ([2.0, 1.0], 1.0),
        # The minimum of a parabola, within the last three powers.
        ([1.0, 1.0, 2.0], 0.5),
        ([1.0, 3.0, 9.0], 0.0),
        ([5.0, 3.0, 2.0, 2.0], 2.5),
        ([9.0, 5.0, 3.0, 2.5, 2.1], 4.0),
        # Ties, and no parabola with a minimum.
        ([1.0, 1.0, 1.0], 0.0),
        ([3.0, 2.0, 1.0], 2.0),
    ],
)
def test_the_tempering_with_the_least_error_is_chosen(errors: list[float], power: float) -> None:
    assert _best_power(errors) == pytest.approx(power)


def test_trials_of_the_tempering_continue_only_while_the_error_falls() -> None:
    assert all(_needs_trial([1.0, 2.0][:n]) for n in range(3))
    assert _needs_trial([3.0, 2.0, 1.0])
    assert not _needs_trial([3.0, 1.0, 1.0])
    assert not _needs_trial([5.0, 4.0, 3.0, 2.0, 1.0])


def test_the_tempering_does_not_depend_on_the_order_of_the_ratings() -> None:
    ratings = drawn(0.0)
    tables = ratings, ratings.sample(frac=1.0, random_state=1)
    method = Variational(n_models=1, max_iter=8)
    first, second = (
        OrdinalRecommender(1, method=method, random_state=0, interactions=False)
        .fit(table)
        ._fitted.rating_model.priors[0]
        .tempering
        for table in tables
    )
    assert np.array_equal(first, second)
    assert first.max() > 1.0


def test_the_callback_stops_the_choice_of_the_tempering() -> None:
    calls: list[int] = []

    def stop(epoch: int, *_: float) -> bool:
        calls.append(epoch)
        return len(calls) == 2

    model = quick(callback=stop).fit(drawn(0.0))
    assert calls == [0, 0, 1]
    assert model.history_["epoch"].tolist() == [1]


def test_the_tempering_is_1_if_the_first_trial_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ratings, fit = drawn(0.0), Variational._fit
    expected = quick(tempering=1.0).fit(ratings)

    def fail(self: Variational, *arguments: Any) -> Any:
        if self.n_models == 1:
            raise RuntimeError("not finite")
        return fit(self, *arguments)

    monkeypatch.setattr(Variational, "_fit", fail)
    assert_same(quick().fit(ratings), expected)


def test_a_runtime_error_of_the_callback_ends_the_choice_of_the_tempering() -> None:
    def fail(*_: Any) -> bool:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        quick(callback=fail).fit(drawn(0.0))


def test_the_tempering_is_not_chosen_with_many_ratings_per_id(ratings: pd.DataFrame) -> None:
    assert_same(quick().fit(ratings), quick(tempering=1.0).fit(ratings))


def test_unknown_ids_are_predicted_like_ids_with_one_rating() -> None:
    ratings = drawn(0.5)
    counts = ratings.groupby("item")["rating"].transform("count")
    model = quick(tempering=1.0).fit(ratings)
    expected = ratings["rating"][counts == 1].mean()
    assert expected < ratings["rating"].mean() - 1.0
    predicted = model.predict(ratings["user"], UNKNOWN + ratings["item"], unknown="ignore")
    assert abs(predicted.mean() - expected) < 0.7
