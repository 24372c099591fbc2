"""SequenceTagger and CRFsuite's five algorithms on twenty tasks of different kinds.

    python benches/tagger_tasks.py [TASK ...] [--systems NAME ...] [--limit 15] [--held]

Each system runs in a separate process with its defaults; "pa, 20" is CRFsuite's `pa` with 20 passes
instead of 100. "L1" is an L1 penalty of the same strength in both programs. All systems read the
same features as Python strings (see `_tagger_tasks.py` for the tasks). Seconds are the time from
strings to a trained model, without imports. Memory is the growth of peak memory once the features
are loaded. The score is F1 of chunks, or the fraction of correct tokens, on the test sentences.
Fits of more than `--limit` CPU seconds have no score.

`--held` scores held-out sentences instead of the test sentences, and stores nothing. Settings are
chosen by these scores only.

The data sets are files in the folder DUALGAP_DATA. Generated sentences replace missing files.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _record import GENERATED, Table, installed
from _tagger_tasks import TASKS
from sequence import f1
from taggers import crfsuite, dualgap, trained

SYSTEMS: dict[str, Callable[..., Any]] = {
    "hamming": dualgap("hamming"),
    "logistic": dualgap("logistic"),
    "pa": crfsuite("pa"),
    "ap": crfsuite("ap"),
    "arow": crfsuite("arow"),
    "lbfgs": crfsuite("lbfgs"),
    "l2sgd": crfsuite("l2sgd"),
    "pa, 20": crfsuite("pa", max_iterations=20),
    "ap, 20": crfsuite("ap", max_iterations=20),
    "arow, 20": crfsuite("arow", max_iterations=20),
}
# An L1 penalty of the same strength in both programs; measured on some tasks only.
SPARSE: dict[str, Callable[..., Any]] = {
    "logistic, L1": dualgap("logistic", penalty="l1", C=2.0),
    "lbfgs, L1": crfsuite("lbfgs", c1=0.5, c2=0.0),
}
OWN = ("hamming", "logistic", "logistic, L1")


def score(kind: str, right: Any, predicted: Any) -> float:
    if kind == "f1":
        return f1(right, predicted)
    pairs = [(a, b) for p, q in zip(right, predicted, strict=True) for a, b in zip(p, q)]  # noqa: B905
    return sum(a == b for a, b in pairs) / len(pairs)


def child(what: str, task: str, path: Path, limit: int, *, is_held: bool) -> None:
    """Write the data of a task to a file, or run one system on it; print the results."""
    sys.modules["pandas"] = None  # type: ignore[assignment]
    read, kind = TASKS[task]
    if what == "data":
        data = read("held" if is_held else "test")
        found: dict[str, Any] = {"sentences": len(data[0]), "tokens": sum(map(len, data[1]))}
        found["generated"] = [*GENERATED]
        with path.open("wb") as file:
            pickle.dump(data, file)
    else:
        with path.open("rb") as file:
            data = pickle.load(file)
        # Import first: most fits are shorter than an import of scikit-learn.
        importlib.import_module("dualgap.sequence" if what in OWN else "pycrfsuite")
        end = round(time.process_time()) + limit
        resource.setrlimit(resource.RLIMIT_CPU, (end, end + 60))
        found = trained((SYSTEMS | SPARSE)[what], data, path.with_name("model.npz"))
        found["score"] = score(kind, data[3], found.pop("predicted"))
    print(json.dumps(found))


def run_child(*arguments: str) -> dict[str, Any]:
    """Return the results of a child process; they are empty if it exceeds the limit."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode == -signal.SIGXCPU:
        return {}
    if done.returncode != 0:
        sys.exit(f"error: {arguments} failed")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


COLUMNS = ("score", "seconds", "cpu_seconds", "passes", "dual_objective", "peak_mb", "model_mb")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=[*SYSTEMS, *SPARSE])
    parser.add_argument("--limit", type=int, default=15)
    parser.add_argument("--held", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("WHAT", "PATH"))
    arguments = parser.parse_args()
    if arguments.child:
        what, path = arguments.child
        child(what, arguments.tasks[0], Path(path), arguments.limit, is_held=arguments.held)
        return
    if importlib.util.find_spec("pycrfsuite") is None:
        sys.exit("error: not installed: pip install python-crfsuite")
    table = Table("tagger-tasks", "task", "system")
    for task in arguments.tasks or TASKS:
        with tempfile.TemporaryDirectory() as temporary:
            path = str(Path(temporary) / "data")
            held = ["--held"] if arguments.held else []
            sizes = run_child(task, *held, "--child", "data", path)
            GENERATED.update(sizes.pop("generated"))
            for system in arguments.systems:
                limit = str(arguments.limit)
                found = run_child(task, "--child", system, path, "--limit", limit)
                row = {name: found.get(name) for name in COLUMNS}
                if arguments.held:
                    print(f"{task}; {system}:", row, flush=True)
                    continue
                own = {} if system in OWN else {"simd": "", "programs": installed("pycrfsuite")}
                table.add(task=task, system=system, **sizes, **row, **own)


if __name__ == "__main__":
    main()
