"""The solvers of benches/benchopt minimise the same objective."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from snippets import ROOT

pytest.importorskip("benchopt")

FOLDER = ROOT / "benches" / "benchopt"


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"bench_{path.replace('/', '_')}", FOLDER / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def value(objective: Any, solver: Any, tolerance: float) -> float | None:
    """Return the objective at a solver's result, or None if the solver skips the objective."""
    given = objective.get_objective()
    if solver.skip(**given)[0]:
        return None
    solver.set_objective(**given)
    solver.run(tolerance)
    found: float = objective.evaluate_result(**solver.get_result())["value"]
    return found


@pytest.mark.parametrize("program", ["dualgap", "scikit_learn", "cyanure", "skglm"])
def test_solvers_agree_for_two_classes(program: str) -> None:
    if program in ("cyanure", "skglm"):
        pytest.importorskip(program)
    objective = load("objective.py").Objective.get_instance(loss="logistic", C=1.0)
    data = load("datasets/digits.py").Dataset.get_instance().get_data()
    two = data["y"] < 2
    objective.set_data(X=data["X"][two], y=data["y"][two])
    best, found = (
        value(objective, load(f"solvers/{name}.py").Solver.get_instance(), tolerance)
        for name, tolerance in (("dualgap", 1e-10), (program, 1e-4))
    )
    assert best is not None
    assert found is not None
    assert best * (1.0 - 1e-8) <= found <= best * 1.01


@pytest.mark.parametrize("C", [0.01, 1.0])
@pytest.mark.parametrize("loss", ["logistic", "max-hinge"])
@pytest.mark.parametrize("program", ["dualgap", "scikit_learn", "cyanure"])
def test_solvers_agree(program: str, loss: str, C: float) -> None:
    if program == "cyanure":
        pytest.importorskip("cyanure")
    objective = load("objective.py").Objective.get_instance(loss=loss, C=C)
    objective.set_data(**load("datasets/digits.py").Dataset.get_instance().get_data())
    # Values of dualgap with a relative gap of 1e-10.
    best = {
        ("logistic", 0.01): 25.50786354,
        ("logistic", 1.0): 363.50725957,
        ("max-hinge", 0.01): 9.37814968,
        ("max-hinge", 1.0): 119.67299919,
    }[loss, C]
    kind = load(f"solvers/{program}.py").Solver
    for name in kind.parameters["solver"]:
        found = value(objective, kind.get_instance(solver=name), 1e-4)
        assert found is None or best * (1.0 - 1e-8) <= found <= best * 1.01
