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


@pytest.mark.parametrize("program", ["dualgap", "scikit_learn", "cyanure", "skglm"])
def test_solvers_agree_for_two_classes(program: str) -> None:
    if program in ("cyanure", "skglm"):
        pytest.importorskip(program)
    objective = load("objective.py").Objective.get_instance(loss="logistic", C=1.0)
    data = load("datasets/digits.py").Dataset.get_instance().get_data()
    two = data["y"] < 2
    objective.set_data(X=data["X"][two], y=data["y"][two])
    given = objective.get_objective()
    values = []
    for name, tolerance in (("dualgap", 1e-10), (program, 1e-4)):
        kind = load(f"solvers/{name}.py").Solver
        solver = kind.get_instance(solver=kind.parameters["solver"][0])
        assert not solver.skip(**given)[0]
        solver.set_objective(**given)
        solver.run(tolerance)
        values.append(objective.evaluate_result(**solver.get_result())["value"])
    assert values[0] * (1.0 - 1e-8) <= values[1] <= values[0] * 1.01


@pytest.mark.parametrize("C", [0.01, 1.0])
@pytest.mark.parametrize("loss", ["logistic", "max-hinge"])
@pytest.mark.parametrize("program", ["dualgap", "scikit_learn", "cyanure"])
def test_solvers_agree(program: str, loss: str, C: float) -> None:
    if program == "cyanure":
        pytest.importorskip("cyanure")
    objective = load("objective.py").Objective.get_instance(loss=loss, C=C)
    objective.set_data(**load("datasets/digits.py").Dataset.get_instance().get_data())
    given = objective.get_objective()
    # Values of dualgap with a relative gap of 1e-10.
    best = {
        ("logistic", 0.01): 25.50786354,
        ("logistic", 1.0): 363.50725957,
        ("max-hinge", 0.01): 9.37814968,
        ("max-hinge", 1.0): 119.67299919,
    }[loss, C]
    kind = load(f"solvers/{program}.py").Solver
    for name in kind.parameters["solver"]:
        solver = kind.get_instance(solver=name)
        if not solver.skip(**given)[0]:
            solver.set_objective(**given)
            solver.run(1e-4)
            value = objective.evaluate_result(**solver.get_result())["value"]
            assert best * (1.0 - 1e-8) <= value <= best * 1.01
