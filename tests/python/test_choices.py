"""The literals for type checkers contain the names that the core registers."""

from __future__ import annotations

import re
from typing import Any, get_args

import numpy as np
import pytest

from dualgap import MulticlassSVC, PolynomialNetworkClassifier, StructuredSVM, _choices, _core
from dualgap.distributed import ConsensusSVC
from dualgap.structured import ChainModel, MulticlassModel, MultilabelModel

X, Y = np.eye(4), np.arange(4) % 2
CHAINS = [X[:2], X[2:]]


@pytest.mark.parametrize(
    ("literal", "names"),
    [
        (_choices.LinearSolver, _core.SOLVERS),
        (_choices.StructuredSolver, _core.STRUCTURED_SOLVERS),
        (_choices.Step, _core.STEPS),
        (_choices.Sampling, _core.SAMPLINGS),
        (_choices.FrankWolfeMethod, _core.FRANK_WOLFE_CHOICES["method"]),
        (_choices.LineSearch, _core.FRANK_WOLFE_CHOICES["line_search"]),
        (_choices.Penalty, _core.PENALTIES),
        (_choices.LossName, [name for name, takes in _core.LOSSES.items() if not takes]),
        (
            _choices.ClassifierLoss,
            [name for name, of in _core.OUTPUT_LOSSES.items() if of != "values"],
        ),
    ],
    ids=lambda value: None if isinstance(value, list) else " ".join(get_args(value)[:1]),
)
def test_literals_equal_the_names_in_the_registries(literal: Any, names: list[str]) -> None:
    assert set(get_args(literal)) == set(names)


@pytest.mark.parametrize(
    ("literal", "model", "data"),
    [
        (_choices.Reoptimize, PolynomialNetworkClassifier(reoptimize="?"), (X, Y)),
        (_choices.Selection, PolynomialNetworkClassifier(selection="?"), (X, Y)),
        (
            _choices.Projection,
            StructuredSVM(ChainModel(), solver="extragradient", projection="?"),
            (CHAINS, [Y[:2], Y[2:]]),
        ),
        (_choices.PartLoss, StructuredSVM(ChainModel(loss="?")), (CHAINS, [Y[:2], Y[2:]])),
        (_choices.PartLoss, StructuredSVM(MultilabelModel(loss="?")), (X, X.astype(int))),
    ],
)
def test_literals_match_the_names_in_errors(literal: Any, model: Any, data: Any) -> None:
    with pytest.raises(ValueError, match="unknown name") as caught:
        model.fit(*data)
    (listed,) = re.findall(r"use one of (.*)$", str(caught.value))
    assert set(get_args(literal)) == set(listed.split(", "))


def test_names_use_hyphens_instead_of_underscores() -> None:
    for literal in vars(_choices).values():
        for name in get_args(literal):
            assert isinstance(name, str)
            assert "_" not in name


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            MulticlassSVC(fit_intercept=False, intercept_scaling=2.0),
            r"^intercept_scaling: fit_intercept=False does not use it, got 2\.0$",
        ),
        (
            ConsensusSVC(checkpoint_interval=0.0),
            "^checkpoint_interval: checkpoint=None does not use it",
        ),
        (MulticlassSVC(sampling="gap"), '^sampling: solver="auto" does not use it'),
        (
            StructuredSVM(MulticlassModel(), solver="frank-wolfe", warm_start=True),
            '^warm_start: solver="frank-wolfe" does not use it, got True$',
        ),
        (
            StructuredSVM(MulticlassModel(), averaging=True, solver="frank-wolfe"),
            '^averaging: solver="frank-wolfe" does not use it',
        ),
    ],
)
def test_parameters_without_effect_are_rejected(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y)
