"""Run the benchmark for C = 1, record the times to a suboptimality of 1e-4, and draw the curves.

    python benches/benchopt/record.py [data set ...]

By default, the data sets are "digits" and all kinds of "simulated" rows with eight and with two
classes. The optimum is the smallest objective that any solver found. Needs benchopt, cyanure and
skglm.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from _record import Table  # noqa: E402

LEVEL = 1e-4
# Names of solvers in the table and in the picture.
NAMES = {
    "dualgap[solver=auto]": "dualgap",
    "scikit-learn[solver=lbfgs]": "L-BFGS",
    "scikit-learn[solver=newton-cg]": "Newton-CG",
    "scikit-learn[solver=saga]": "SAGA",
    "scikit-learn[solver=liblinear]": "LIBLINEAR",
    "skglm[solver=lbfgs]": "skglm, L-BFGS",
    "cyanure[solver=auto]": "cyanure",
    "cyanure[solver=qning-miso]": "QNING-MISO",
}


def run(names: list[str]) -> Any:
    """Run benchopt; return a row for each point of each curve, with its relative suboptimality."""
    command = [sys.executable, "-m", "benchopt", "run", str(HERE), "--no-plot", "--no-display"]
    command += ["-o", "Linear classification[C=1.0]"]
    command += ["--max-runs", "25", "--n-repetitions", "3", "--timeout", "5"]
    command += ["--output", "recorded"]
    subprocess.run([*command, *(part for name in names for part in ("-d", name))], check=True)
    points = pd.read_parquet(HERE / "outputs" / "recorded.parquet")
    points["solver"] = points["solver_name"].replace(NAMES)
    kind = points["dataset_name"].str.extract(r"kind=(\w+)")[0]
    has_two = points["dataset_name"].str.contains(r"n_classes=2\b")
    two = has_two.map({True: ", two classes", False: ""})
    points["data"] = points["dataset_name"].str.split("[").str[0] + (" " + kind).fillna("") + two
    points["loss"], points["C"] = points["p_obj_loss"], points["p_obj_C"]
    best = points.groupby(["data", "loss", "C"])["objective_value"].transform("min")
    points["excess"] = points["objective_value"] / best - 1.0
    return points


def record(points: Any) -> None:
    table = Table("benchopt", "data", "loss", "C", "solver")
    for (data, loss, C, solver), own in points.groupby(["data", "loss", "C", "solver"]):
        reached = own[own["excess"] <= LEVEL].groupby("idx_rep")["time"].min()
        complete = len(reached) == own["idx_rep"].nunique()
        row = {"data": data, "loss": loss, "C": f"{C:g}", "solver": solver}
        table.add(**row, seconds=reached.median() if complete else None)


def draw(points: Any) -> None:
    matplotlib.use("agg")
    from matplotlib import pyplot

    data = sorted(points["data"].unique())
    figure, axes = pyplot.subplots(2, len(data), figsize=(3.2 * len(data), 6), squeeze=False)
    colours = {name: f"C{at}" for at, name in enumerate(sorted(points["solver"].unique()))}
    for row, loss in zip(axes, sorted(points["loss"].unique()), strict=True):
        for axis, name in zip(row, data, strict=True):
            own = points[(points["data"] == name) & (points["loss"] == loss)]
            axis.set_visible(not own.empty)
            for solver, curve in own.groupby("solver"):
                medians = curve.groupby("stop_val")[["time", "excess"]].median().sort_values("time")
                excess = medians["excess"].clip(lower=1e-9)
                axis.loglog(medians["time"], excess, ".-", color=colours[solver], label=solver)
            axis.set(title=f"{name}\n{loss}", xlabel="seconds")
        row[0].set_ylabel("objective / optimum - 1")
    lines = {line.get_label(): line for axis in axes.flat for line in axis.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="lower center", ncols=len(lines), frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(HERE.parents[1] / "docs" / "pictures" / "benchopt.png", dpi=80)


if __name__ == "__main__":
    points = run(sys.argv[1:] or ["digits", "simulated"])
    record(points)
    draw(points)
