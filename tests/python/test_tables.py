"""Errors on tables name the column or say what to do."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fitted import FITS
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dualgap import LogisticRegression, MulticlassSVC, PolynomialNetworkClassifier
from dualgap.export import to_onnx
from dualgap.sequence import SequenceTagger
from dualgap.structured import ChainModel, StructuredSVM

ESTIMATORS = [LogisticRegression(), MulticlassSVC(), PolynomialNetworkClassifier(2)]
TABLE = pd.DataFrame({"months": [1.0, 2.0, 3.0], "city": ["7", "Oslo", "Rome"]})
Y = np.array([0, 1, 1])


def name(estimator: Any) -> str:
    return type(estimator).__name__


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
@pytest.mark.parametrize(
    ("X", "column"),
    [
        (TABLE, "'city'"),
        (TABLE.astype({"city": "category"}), "'city'"),
        (pa.Table.from_pandas(TABLE), "'city'"),
        (TABLE.to_numpy(), "1"),
        (TABLE.to_numpy().tolist(), "1"),
    ],
    ids=["frame", "categories", "arrow", "array", "list"],
)
def test_errors_name_the_string_and_its_column(estimator: Any, X: Any, column: str) -> None:
    message = f"^X: could not convert string to float: 'Oslo', in column {column}; .*OneHotEncoder"
    with pytest.raises(ValueError, match=message):
        clone(estimator).fit(X, Y)


def test_errors_name_the_string_in_rows_to_predict() -> None:
    model = MulticlassSVC(random_state=0).fit(TABLE.assign(city=[7.0, 8.0, 9.0]), Y)
    with pytest.raises(ValueError, match=r"^X: could not convert .*, in column 'city'; "):
        model.predict(TABLE)


def test_strings_of_digits_are_read_as_numbers() -> None:
    X = TABLE.assign(city=["7", "8", "9"])
    model = MulticlassSVC(random_state=0).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), model.predict(X.astype(float)))


@pytest.mark.parametrize("method", ["predict_proba", "predict_log_proba"])
def test_errors_say_how_to_get_probabilities(method: str) -> None:
    model = copy.deepcopy(MulticlassSVC())
    assert not hasattr(model, method)
    message = f"'MulticlassSVC' object has no attribute '{method}'; .*LogisticRegression"
    with pytest.raises(AttributeError, match=message):
        getattr(model, method)
    with pytest.raises(AttributeError, match=r"has no attribute 'coef'$"):
        model.coef  # noqa: B018


def test_errors_say_which_step_of_a_pipeline_to_export() -> None:
    model = make_pipeline(StandardScaler(), MulticlassSVC(random_state=0)).fit(np.eye(3), Y)
    with pytest.raises(TypeError, match=r"got Pipeline; export its last step, pipeline\[-1\]"):
        to_onnx(model)


ROWS = pd.DataFrame(FITS["svc"][1], columns=list("abcd"))
WORDS = pd.Series(np.array(["no", "maybe", "yes"])[FITS["svc"][2]])


def to_polars(values: Any) -> Any:
    polars = pytest.importorskip("polars")
    if isinstance(values, pd.Series):
        return polars.Series(values.to_numpy())
    return polars.DataFrame({name: values[name].to_numpy() for name in values.columns})


def to_arrow(values: Any) -> Any:
    is_series = isinstance(values, pd.Series)
    return pa.array(values.to_numpy()) if is_series else pa.Table.from_pandas(values)


def to_arrow_categories(values: Any) -> Any:
    found = to_arrow(values)
    return found.dictionary_encode() if isinstance(values, pd.Series) else found


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("convert", [to_polars, to_arrow, to_arrow_categories])
@pytest.mark.parametrize("kind", ["svc", "logistic", "svc-cv", "class-features", "consensus", "pn"])
def test_tables_of_other_libraries_give_the_model_of_pandas(kind: str, convert: Any) -> None:
    X, y, weights = convert(ROWS), convert(WORDS), np.linspace(0.5, 1.5, len(WORDS))
    model = clone(FITS[kind][0]).fit(X, y, sample_weight=convert(pd.Series(weights)))
    expected = clone(FITS[kind][0]).fit(ROWS, WORDS, sample_weight=weights)
    np.testing.assert_array_equal(model.feature_names_in_, list("abcd"))
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    np.testing.assert_array_equal(model.predict(X), expected.predict(ROWS))
    assert model.score(X, y) == expected.score(ROWS, WORDS)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(convert(ROWS[list("dcba")]))


def to_modin(values: Any) -> Any:
    modin = pytest.importorskip("modin.pandas")
    config = pytest.importorskip("modin.config")
    config.Engine.put("python")
    return modin.Series(values) if isinstance(values, pd.Series) else modin.DataFrame(values)


CONVERSIONS = [lambda values: values, to_polars, to_arrow, to_modin]
CONVERSION_NAMES = ["pandas", "polars", "arrow", "modin"]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::UserWarning:modin")
@pytest.mark.parametrize("convert", CONVERSIONS, ids=CONVERSION_NAMES)
@pytest.mark.parametrize("kind", ["fm", "pn-regressor", "fm-regressor", "structured-classes"])
def test_targets_may_be_columns_of_any_library(kind: str, convert: Any) -> None:
    estimator, X, y = FITS[kind]
    table, column = convert(pd.DataFrame(X, columns=list("abcd"))), convert(pd.Series(y))
    model, expected = clone(estimator).fit(table, column), clone(estimator).fit(X, y)
    np.testing.assert_array_equal(model.feature_names_in_, list("abcd"))
    found = model.predict(table)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, expected.predict(X))
    assert model.score(table, column) == expected.score(X, y)


@pytest.mark.filterwarnings("ignore::UserWarning:modin")
@pytest.mark.parametrize("convert", CONVERSIONS, ids=CONVERSION_NAMES)
@pytest.mark.parametrize("kind", [StructuredSVM(ChainModel(), C=0.1), SequenceTagger("hamming")])
def test_sequences_may_be_tables(kind: Any, convert: Any, tmp_path: Path) -> None:
    _, X, y = FITS["chain"]
    tables = [pd.DataFrame(rows, columns=list("abcd")) for rows in X]
    rows = [convert(table) for table in tables]
    labels = [convert(pd.Series(label)) for label in y]
    model = clone(kind).set_params(random_state=0).fit(rows, labels)
    expected = clone(kind).set_params(random_state=0).fit(X, y)
    model.save(tmp_path / "model")
    for each in (model, type(model).load(tmp_path / "model")):
        np.testing.assert_array_equal(each.feature_names_in_, list("abcd"))
        assert all(map(np.array_equal, each.predict(rows), expected.predict(X)))
        assert each.score(rows, labels) == expected.score(X, y)
        with pytest.raises(ValueError, match="feature names"):
            each.predict([convert(table[list("dcba")]) for table in tables])
    mixed = [*rows[:-1], convert(tables[-1][list("dcba")])]
    with pytest.raises(ValueError, match=r"example 11 has the columns \['d', .* example 0 has"):
        model.fit(mixed, labels)
    model.fit(X, y)
    assert not hasattr(model, "feature_names_in_")


def test_feature_names_of_a_tagger_are_the_columns_of_its_table() -> None:
    _, X, y = FITS["chain"]
    table, labels = pd.DataFrame(np.concatenate(X), columns=list("abcd")), np.concatenate(y)
    lengths = [len(rows) for rows in X]
    model = SequenceTagger(random_state=0).fit(table, labels, lengths=lengths)
    np.testing.assert_array_equal(model.feature_names_in_, list("abcd"))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[list("dcba")], lengths=lengths)


def test_a_step_that_returns_tables_gives_the_model_its_names() -> None:
    scaled = make_pipeline(StandardScaler(), MulticlassSVC(random_state=0))
    scaled.set_output(transform="pandas").fit(ROWS, WORDS)
    np.testing.assert_array_equal(scaled[-1].feature_names_in_, list("abcd"))
    assert isinstance(scaled.predict(ROWS), np.ndarray)


@pytest.mark.parametrize("kind", [LogisticRegression, MulticlassSVC])
def test_a_missing_value_names_its_column_and_a_remedy(kind: Any) -> None:
    table = pd.DataFrame(np.eye(6), columns=list("abcdef"))
    table.loc[2, "d"] = np.nan
    with pytest.raises(ValueError, match=r"column 'd'; fill missing values, .* SimpleImputer"):
        kind().fit(table, [0, 1, 2] * 2)
    with pytest.raises(ValueError, match=r"column 3; fill missing values, .* SimpleImputer"):
        kind().fit(table.to_numpy(), [0, 1, 2] * 2)


@pytest.mark.parametrize("kind", [LogisticRegression, MulticlassSVC])
def test_infinity_names_its_column(kind: Any) -> None:
    table = pd.DataFrame(np.eye(6), columns=list("abcdef"))
    table.loc[2, "d"] = np.inf
    with pytest.raises(ValueError, match=r"^X: contains .*infinity, .*column 'd'; "):
        kind().fit(table, [0, 1, 2] * 2)


@pytest.mark.parametrize("others", [["city"], []], ids=["mixed", "dates only"])
@pytest.mark.parametrize("convert", [lambda table: table, pa.Table.from_pandas])
@pytest.mark.parametrize("days", [pd.Timestamp("2026-01-01"), pd.Timedelta(days=1)])
def test_errors_name_the_column_of_dates(others: list[str], convert: Any, days: Any) -> None:
    X = TABLE[others].assign(city=1.0, since=days)[[*others, "since"]]
    with pytest.raises(TypeError, match=r"^X: column 'since' has the type .*; convert dates"):
        MulticlassSVC(random_state=0).fit(convert(X), Y)


def test_the_error_for_lazy_tables_suggests_collect() -> None:
    class Lazy:
        def collect(self) -> None: ...

    with pytest.raises(TypeError, match=r"X: must be an array, got Lazy; call its method collect"):
        LogisticRegression().fit(Lazy(), [0, 1])


@pytest.mark.parametrize("loss", ["log", "logistic"])
def test_the_error_for_a_logistic_loss_names_the_logistic_estimator(loss: Any) -> None:
    with pytest.raises(ValueError, match=f"for '{loss}', use LogisticRegression"):
        MulticlassSVC(loss).fit(np.eye(3), [0, 1, 2])


def test_the_error_for_a_top_level_load_names_the_methods_of_classes() -> None:
    import dualgap

    with pytest.raises(AttributeError, match=r"MulticlassSVC\.load\(path\)"):
        dualgap.load  # noqa: B018


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
def test_errors_name_a_category_beside_a_nullable_column(estimator: Any) -> None:
    table = pd.DataFrame({"flag": [True, False, True], "city": pd.Categorical(["a", "b", "a"])})
    with pytest.raises(ValueError, match=r"^X: .*, in column 'city'; .*OneHotEncoder"):
        clone(estimator).fit(table, Y)
