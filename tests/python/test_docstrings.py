"""Docstrings of estimators describe all attributes of a fitted model, and no other attributes."""

from __future__ import annotations

import doctest
import importlib
import inspect
from typing import Any

import pytest
from fitted import FITS
from numpydoc.docscrape import NumpyDocString
from sklearn.base import clone

import dualgap


def documented(estimator: Any) -> set[str]:
    """Return the names in the section "Attributes"."""
    sections = NumpyDocString(inspect.getdoc(type(estimator)) or "")
    names = (entry.name or entry.type for entry in sections["Attributes"])
    return {name.strip() for line in names for name in line.replace("\n", " ").split(",")}


def attributes(model: Any) -> set[str]:
    """Return the public attributes of a fitted model, including properties."""
    found = {name for name in vars(model) if name.endswith("_")}
    found |= {
        name
        for name, _ in inspect.getmembers(type(model), lambda member: isinstance(member, property))
        if name.endswith("_") and hasattr(model, name)
    }
    found |= {name for name in ("n_features_in_", "feature_names_in_") if hasattr(model, name)}
    return {name for name in found if not name.startswith("_")}


QUIET = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@QUIET
@pytest.mark.parametrize("name", FITS)
def test_fitted_attributes_are_documented(name: str) -> None:
    estimator, X, y = FITS[name]
    model = clone(estimator).fit(X, y)
    missing = attributes(model) - documented(model)
    assert not missing, f"{type(model).__name__} does not document {sorted(missing)}"


@QUIET
def test_every_documented_attribute_exists() -> None:
    classes: dict[type, set[str]] = {}
    for estimator, X, y in FITS.values():
        model = clone(estimator).fit(X, y)
        found = classes.setdefault(type(model), {"feature_names_in_"})
        found |= attributes(model)
    for cls, found in classes.items():
        assert documented(cls.__new__(cls)) <= found, cls.__name__


PUBLIC = [getattr(dualgap, name) for name in dualgap.__all__ if callable(getattr(dualgap, name))]
MODULES = ["export", "frank_wolfe", "losses", "metrics", "multiclass", "sequence", "structured"]
DOCUMENTED = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (dualgap, *(importlib.import_module(f"dualgap.{name}") for name in MODULES))
    for name in module.__all__
}
EXAMPLES = {
    thing: name
    for name, thing in DOCUMENTED.items()
    if callable(thing) and ">>> " in (thing.__doc__ or "")
}


@pytest.mark.parametrize("thing", PUBLIC, ids=lambda each: each.__name__)
def test_every_public_name_has_an_example(thing: Any) -> None:
    assert ">>> " in (inspect.getdoc(thing) or "")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("thing", EXAMPLES, ids=EXAMPLES.get)
def test_examples_print_the_documented_output(
    thing: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    names = vars(importlib.import_module(thing.__module__)).copy()
    (example,) = doctest.DocTestFinder(recurse=False).find(thing, thing.__name__, globs=names)
    failed, tried = doctest.DocTestRunner().run(example)
    assert tried > 0
    assert failed == 0, capsys.readouterr().out
