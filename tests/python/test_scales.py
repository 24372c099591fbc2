"""Warnings of fits that do not converge name the cause, such as a column to scale."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualgap import (
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    LogisticRegression,
    LogisticRegressionCV,
    MulticlassSVC,
    MulticlassSVCCV,
    PolynomialNetworkClassifier,
    PolynomialNetworkRegressor,
    StructuredSVM,
)
from dualgap._estimator.scales import sample_rows, scale_cause
from dualgap._validation import core_rows
from dualgap.distributed import ConsensusSVC
from dualgap.sequence import SequenceTagger
from dualgap.structured import ChainModel


def problem(scale: float) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = (X @ rng.normal(size=(3, 3))).argmax(axis=1)
    X[:, 1] *= scale
    return X, y


def chains(estimator: Any, scale: float) -> Any:
    X, y = problem(scale)
    return estimator.fit([X[i : i + 3] for i in range(0, 60, 3)], y.reshape(-1, 3))


FITS: dict[str, Any] = {
    "multiclass": lambda scale: MulticlassSVC(tol=1e-9, max_iter=1, solver="block-descent").fit(
        *problem(scale)
    ),
    "folds": lambda scale: MulticlassSVCCV(Cs=[1.0], cv=2, cv_tol=1e-9, max_iter=1).fit(
        *problem(scale)
    ),
    "consensus": lambda scale: ConsensusSVC(tol=1e-9, max_iter=1, n_partitions=2).fit(
        *problem(scale)
    ),
    "polynomial": lambda scale: FactorizationMachineClassifier(tol=1e-9, max_iter=1).fit(
        *problem(scale)
    ),
    "chain": lambda scale: chains(StructuredSVM(ChainModel(), tol=1e-9, max_iter=1), scale),
    "logistic folds": lambda scale: LogisticRegressionCV(
        Cs=[1.0], cv=2, cv_tol=1e-12, max_iter=1, refit=False
    ).fit(*problem(scale)),
    "path": lambda scale: MulticlassSVC(tol=1e-9, max_iter=1, solver="block-descent").path(
        *problem(scale), 1.0, 1.1
    ),
    "logistic path": lambda scale: LogisticRegression(tol=1e-12, max_iter=1).path(
        *problem(scale), 1.0, 1.1
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_that_does_not_converge_names_the_column_to_scale(name: str) -> None:
    cause = r"differ in scale by a factor of .* \(column 1 reaches .*\): scale them with Standard"
    lowered = {"folds": "Cs?", "polynomial": "radius", "chain": "C, or lower radius"}
    lower = lowered.get(name.removeprefix("logistic "), "C")
    with pytest.warns(ConvergenceWarning, match=f"{cause}Scaler, or raise .*, or lower {lower}$"):
        FITS[name](1e6)
    with pytest.warns(ConvergenceWarning, match="raise max_iter|raise n_components") as caught:
        FITS[name](1.0)
    assert not any("scale" in str(warning.message) for warning in caught)


def named_sentences(scale: float) -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(0)
    X = [
        [{f"w={rng.integers(5)}": True, "length": scale * float(rng.normal())} for _ in range(4)]
        for _ in range(30)
    ]
    return X, [[str(label) for label in rng.choice(["A", "B"], 4)] for _ in X]


@pytest.mark.parametrize("loss", ["hamming", "logistic"])
@pytest.mark.parametrize("form", ["lists", "iterators", "spill", "unknown labels", "hashed"])
def test_warnings_of_taggers_name_the_feature_to_scale(
    loss: Any, form: str, tmp_path: Path
) -> None:
    options = {"hash_bits": 12} if form == "hashed" else {}
    tagger = SequenceTagger(loss, C=1.0, tol=1e-9, max_iter=2, random_state=0, **options)

    def warning(scale: float) -> str:
        X, y = named_sentences(scale)
        if form == "unknown labels":
            y = [[None, *labels[1:]] for labels in y]
        given = (X, y) if form == "lists" else (iter(X), iter(y))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tagger.fit(*given, spill=tmp_path if form == "spill" else None)
        assert [warning.category for warning in caught] == [ConvergenceWarning]
        return str(caught[0].message)

    feature = r"the hashed feature \d+" if form == "hashed" else "feature 'length'"
    remedies = "scale its values, or raise max_iter or tol, or lower C"
    assert re.search(rf"; {feature} reaches 2\.\de\+06, .*: {remedies}$", warning(1e6))
    assert "scale" not in warning(1.0)


@pytest.mark.parametrize("form", ["array", "sparse", "sentences", "table"])
def test_warnings_of_taggers_of_matrices_name_the_column_to_scale(form: str) -> None:
    X, y = problem(1e6)
    rows: Any = {"array": X, "sparse": sp.csr_array(X)}.get(form)
    if form in ("sentences", "table"):
        name = pd.DataFrame if form == "table" else np.asarray
        rows = [name(X[i : i + 3]) for i in range(0, 60, 3)]
    if form == "table":
        rows = [table.rename(columns="feature {}".format) for table in rows]
    flat = form in ("array", "sparse")
    lengths = {"lengths": [3] * 20} if flat else {}
    column = "'feature 1'" if form == "table" else "1"
    scaler = "MaxAbsScaler" if form == "sparse" else "StandardScaler"
    with pytest.warns(ConvergenceWarning, match=rf"\(column {column} reaches .*{scaler}, or"):
        SequenceTagger(tol=1e-9, max_iter=1).fit(rows, y if flat else y.reshape(-1, 3), **lengths)


@pytest.mark.parametrize("estimator", [MulticlassSVC, LogisticRegression])
def test_warnings_of_paths_use_the_columns_of_their_own_table(estimator: Any) -> None:
    X, y = problem(1e6)
    table = pd.DataFrame(X, columns=[f"feature {j}" for j in range(X.shape[1])])
    fitted = estimator().fit(pd.DataFrame({"other": X[:, 0]}), y)
    with pytest.warns(ConvergenceWarning, match="column 'feature 1' reaches"):
        fitted.set_params(tol=1e-12, max_iter=1).path(table, y, 1.0, 1.1)


@pytest.mark.parametrize("estimator", [MulticlassSVC, FactorizationMachineClassifier])
def test_warnings_of_a_fit_to_a_table_use_column_names(estimator: Any) -> None:
    X, y = problem(1e6)
    table = pd.DataFrame(X, columns=[f"feature {j}" for j in range(X.shape[1])])
    with pytest.warns(ConvergenceWarning, match="column 'feature 1' reaches"):
        estimator(tol=1e-9, max_iter=1).fit(table, y)


@pytest.mark.parametrize("exponents", [(-3.0, 5.0), (-6.0, 6.0), (0.0, 4.7)])
@pytest.mark.parametrize(
    "estimator",
    [
        FactorizationMachineClassifier,
        FactorizationMachineRegressor,
        PolynomialNetworkClassifier,
        PolynomialNetworkRegressor,
    ],
)
def test_polynomial_models_are_no_worse_than_the_null_model(estimator: Any, exponents: Any) -> None:
    """The fit converges, or its warning advises to scale the columns."""
    X, y = problem(1.0)
    X *= np.logspace(*exponents, 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = estimator(max_iter=30, random_state=0).fit(X, y)
    assert 0.0 <= model.dual_objective_ <= model.objective_ <= model.null_objective_
    assert model.converged_ or "scale them with" in str(caught[0].message)


def large_rows() -> Any:
    rng = np.random.default_rng(0)
    return rng.normal(size=(2500, 4)) * rng.integers(0, 2, size=(2500, 4))


def test_the_reported_cause_describes_the_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    assert scale_cause(X, 1.0) is None
    assert scale_cause(1e6 * X) is None
    large = str(scale_cause(1e6 * X, 1.0))
    assert "constant feature of the intercept is 1:" in large
    assert "differ" not in large
    shifted = str(scale_cause(X + np.array([0.0, 1e5])))
    assert "factor of" in shifted
    for constant in (0.0, 1.0):
        far = str(scale_cause(X + 1e6, constant))
        assert "column 0 of X has a mean of 1e+06 and a standard deviation of only" in far
    assert "MaxAbsScaler" in str(scale_cause(sp.csr_array(X * [1.0, 1e6])))
    dense, sparse = core_rows(large_rows()), core_rows(sp.csr_array(large_rows()))
    for sample in (sample_rows(dense), sample_rows(sparse).toarray()):
        np.testing.assert_array_equal(sample, large_rows()[::3])
    for nothing in (None, X[:0], np.zeros((3, 2)), [["a"]], X.astype(str), "text", [X, X[:, :1]]):
        assert scale_cause(nothing, 1.0) is None
