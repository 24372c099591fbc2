"""Record the results of asv in benches/results/asv-history.csv.

    python benches/asv/record.py [folder of results, by default target/asv/results]

A row has the fastest of all samples of a benchmark at a commit: other work on the machine only adds
to processor time. `spread` is the median sample divided by the fastest. Run asv with
--append-samples, which stores the samples. Needs dualgap and the packages that asv measured with.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from _record import Table  # noqa: E402

# Names of the benchmarks in the table.
NAMES = {
    "models.Fit.time_fit": "fit",
    "models.Use.time_predict": "predict",
    "models.Use.time_save_and_load": "save and load",
}


def cases(results: dict[str, Any], name: str, column: str) -> Iterator[tuple[str, Any]]:
    """Yield the parameter of each case of a benchmark, and its entry in a column of results."""
    # asv leaves out the last columns if they are empty.
    cells = dict(zip(results["result_columns"], results["results"].get(name, []), strict=False))
    (parameters,) = cells.get("params", [[]])
    for parameter, value in zip(parameters, cells.get(column) or [], strict=False):
        yield parameter.strip("'"), value


def main(folder: Path) -> None:
    files = [path for path in folder.glob("*/*.json") if path.name != "machine.json"]
    commits = [json.loads(path.read_text("utf-8")) for path in files]
    table = Table("asv-history", "benchmark", "model", "commit")
    for results in sorted(commits, key=lambda results: results["date"]):
        epochs = dict(cases(results, "models.Fit.track_epochs", "result"))
        for name, shown in NAMES.items():
            for model, samples in cases(results, name, "samples"):
                if not samples:
                    continue  # the commit lacks this model
                fastest = min(samples)
                table.add(
                    benchmark=shown,
                    model=model,
                    milliseconds=1000.0 * fastest,
                    spread=statistics.median(samples) / fastest,
                    samples=len(samples),
                    epochs=epochs.get(model) if shown == "fit" else None,
                    commit=results["commit_hash"][:7],
                )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else HERE.parents[1] / "target" / "asv" / "results")
