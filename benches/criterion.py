"""Record the medians that `cargo bench` wrote to target/criterion, and delete that folder.

python benches/criterion.py

The folder does not name the instruction set. If measurements stayed there, the next call could
record them again under another set.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path

from _record import HERE, Table

FOLDER = HERE.parent / "target/criterion"


def medians(folder: Path) -> dict[str, dict[str, float]]:
    """Read the median seconds per call, by group and name."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for path in sorted(folder.rglob("new/benchmark.json")):
        about = json.loads(path.read_text("utf-8"))
        estimates = json.loads(path.with_name("estimates.json").read_text("utf-8"))
        name = about["function_id"] or about["value_str"] or ""
        found[about["group_id"]][name] = 1e-9 * estimates["median"]["point_estimate"]
    return found


def main() -> None:
    found = medians(FOLDER)
    if not found:
        print("criterion.py: skipped; run cargo bench first")
        return
    walrus, structured = Table("walrus", "k"), Table("structured-calls", "group", "call")
    sizes = {int(group.split("/")[1]): group for group in found if group.startswith("walrus/")}
    for k in sorted(sizes):
        row = {name.replace("-", "_"): value for name, value in found.pop(sizes[k]).items()}
        walrus.add(k=k, **row, sweep_over_search=row["sorted_sweep"] / row["search"])
    lines = Table("frank-wolfe-lines", "loss")
    for group in [group for group in found if group.startswith("frank-wolfe-lines/")]:
        calls = found.pop(group)
        total = calls["searched"]
        parts = {name: calls[name] / total for name in ("scores", "vertices", "images")}
        search = max(0.0, 1.0 - calls["scheduled"] / total)
        rest = 1.0 - sum(parts.values()) - search
        lines.add(loss=group.split("/")[1], seconds=total, **parts, search=search, rest=rest)
    for group, calls in found.items():
        for call, value in calls.items():
            structured.add(group=group, call=call, seconds=value)
    shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
