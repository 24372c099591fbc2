"""Send signals at random moments, and record the numbers of trials and failures.

    python benches/trials_signals.py [--times 5] [PART OF A NAME ...]

SIGINT must end a fit with KeyboardInterrupt within a second, and leave the estimator unfitted and
the process able to fit again. SIGTERM and SIGHUP must end the process within a second. A command
must also end within a second. After SIGINT, its status must be 130, unless it had already ended or
had not yet begun. It must leave the model file unchanged or complete, and no other files. If a
signal (including SIGKILL) ends a consensus fit, a resumed fit must converge to the same model, bit
for bit, as an uninterrupted fit, or raise the error "resume: no checkpoint".
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _record import Table
from _trial_fits import LONG, classes, fits
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dualgap import MulticlassSVC
from dualgap.cli._linear_file import read_linear
from dualgap.distributed import ConsensusSVC
from dualgap.recommend import OrdinalRecommender
from dualgap.sequence import SequenceTagger

LIMIT = 1.0
"""Time limit in seconds."""

ENDING = (signal.SIGTERM, signal.SIGHUP)
GENERATOR = random.Random(0)
Outcome = tuple[bool, float]
"""Whether a trial succeeded, and its seconds."""


def sent(process: int, number: signal.Signals, after: float) -> Callable[[], tuple[int, float]]:
    """Send a signal to a child after some seconds; return a function that waits for its end.

    The function returns the exit code of the child and the seconds that passed.
    """
    time.sleep(after)
    os.kill(process, number)
    start = time.monotonic()

    def ended() -> tuple[int, float]:
        while time.monotonic() < start + 60:
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status), time.monotonic() - start
            time.sleep(0.002)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return -signal.SIGKILL, 60.0

    return ended


def interrupted_fit(fit: Callable[[], Any], ready: int) -> int:
    """Run a fit that a signal will interrupt, in the child process; return an exit code.

    The code is 0 if the fit is interrupted, its model stays unfitted, and a new fit works.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")
    model = getattr(fit, "keywords", {}).get("model")
    try:
        os.write(ready, b"r")
        fit()
        return 3
    except KeyboardInterrupt:
        os.write(ready, b"i")
    if model is not None:
        try:
            check_is_fitted(model)
            return 4
        except NotFittedError:
            pass
    X, y = np.eye(6), np.arange(6) % 3
    return 0 if (MulticlassSVC(n_jobs=2).fit(X, y).predict(X) == y).all() else 5


def signal_fit(fit: Callable[[], Any], number: signal.Signals) -> Outcome:
    """Fit in a separate process and send a signal at a random moment."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 6
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            code = interrupted_fit(fit, writing)
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        pipe.read(1)
        ended = sent(child, number, GENERATOR.uniform(0.0, 1.0))
        start = time.monotonic()
        answered = pipe.read(1)
        seconds = time.monotonic() - start
    code, all_seconds = ended()
    if number == signal.SIGINT:
        return code == 0 and answered == b"i" and seconds <= LIMIT, seconds
    return code == -number and all_seconds <= LIMIT, all_seconds


def rows_file(folder: Path) -> None:
    """Write the input files: LIBSVM rows, ratings, tagged words, and templates of features."""
    X, y = classes(20000, 30, 20)
    lines = [
        " ".join([str(label), *(f"{i + 1}:{value:.3f}" for i, value in enumerate(row))])
        for row, label in zip(X, y, strict=True)
    ]
    (folder / "rows").write_text("\n".join(lines) + "\n")
    ratings = [(i % 500, i % 701, 1 + i % 5, i) for i in range(30000)]
    text = "\n".join(",".join(map(str, row)) for row in ratings)
    (folder / "ratings.csv").write_text("user,item,rating,timestamp\n" + text + "\n")
    words = "\n\n".join(
        "\n".join(f"w{i * j % 97} L{i * j % 7}" for j in range(9)) for i in range(3000)
    )
    (folder / "words").write_text(words + "\n")
    (folder / "template").write_text("U00:%x[0,0]\nU01:%x[-1,0]\nB\n")


COMMANDS: dict[str, tuple[list[str], Callable[[Path], Any] | None]] = {
    "fit": (["fit", "-e", "1e-9", "rows", "model"], read_linear),
    "predict": (["predict", "rows", "linear", "predicted"], None),
    "recommend": (
        ["recommend", "--data", "ratings.csv", "--save", "model", "--user", "1"],
        OrdinalRecommender.load,
    ),
    "tag train": (["tag", "train", "-t", "template", "words", "model"], SequenceTagger.load),
}


def signal_command(name: str, number: signal.Signals, folder: Path) -> Outcome:
    """Run a command, send a signal at a random moment, and check the files that it leaves."""
    arguments, read = COMMANDS[name]
    result = folder / arguments[-1] if read is None else folder / "model"
    kept = {"rows", "ratings.csv", "words", "template", "linear"}
    for path in folder.iterdir():
        if path.name not in kept:
            path.unlink()
    old = b"an old model"
    result.write_bytes(old)
    command = [sys.executable, "-m", "dualgap.cli", *arguments]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, **quiet) as process:
        code, seconds = sent(process.pid, number, GENERATOR.uniform(0.2, 4.0))()
        process.returncode = code
    # Before the command begins, Python's default handler gets SIGINT.
    expected = {0, 130, -number} if number == signal.SIGINT else {0, -number}
    well = code in expected and seconds <= LIMIT
    left = {path.name for path in folder.iterdir()} - kept - {result.name}
    whole = result.read_bytes() == old
    if not whole and read is not None:
        read(result)
        whole = True
    if read is None and not whole:
        whole = code != 0 or len(result.read_text().splitlines()) == 20000
    return well and whole and not left, seconds


def consensus(**more: Any) -> ConsensusSVC:
    """Return the estimator for the trials of checkpoints."""
    if more:
        more["checkpoint_interval"] = 0.0
    return ConsensusSVC(C=1.0, tol=1e-2, n_partitions=3, random_state=0, n_jobs=2, **more)


def signal_consensus(number: signal.Signals, data: Any, whole: Any) -> Outcome:
    """Start a fit with checkpoints, end it by a signal, and resume it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        child = os.fork()
        if child == 0:
            code = 6
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                consensus(checkpoint=folder).fit(*data)
                code = 0
            except KeyboardInterrupt:
                code = 130
            finally:
                os._exit(code)
        code, seconds = sent(child, number, GENERATOR.uniform(0.0, 2.0))()
        well = seconds <= LIMIT and code in {0, 130 if number == signal.SIGINT else -number}
        drafts = [path for path in folder.iterdir() if path.suffix == ".draft"]
        try:
            resumed = consensus(resume=folder).fit(*data)
        except ValueError as error:
            return well and not drafts and "resume: no checkpoint" in str(error), seconds
        below = resumed.dual_objective_ <= whole.objective_
        bounds = below and whole.dual_objective_ <= resumed.objective_
        same = np.array_equal(resumed.coef_, whole.coef_) and resumed.converged_
        return well and not drafts and bounds and same, seconds


def record(table: Table, trial: str, number: signal.Signals, outcomes: list[Outcome]) -> None:
    """Add a row."""
    table.add(
        trial=trial,
        signal=number.name,
        tried=len(outcomes),
        failed=sum(not well for well, _ in outcomes),
        slowest=max(seconds for _, seconds in outcomes),
    )


def main() -> None:
    """Run all trials, or only trials whose name contains one of the given parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("names", nargs="*", metavar="PART OF A NAME")
    options = parser.parse_args()
    table = Table("trials-signals", "trial", "signal")

    def wanted(name: str) -> bool:
        return not options.names or any(part in name for part in options.names)

    for name, fit in fits(LONG).items():
        for number, times in ((signal.SIGINT, options.times), *((n, 1) for n in ENDING)):
            if wanted(name):
                outcomes = [signal_fit(fit, number) for _ in range(times)]
                record(table, name, number, outcomes)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows_file(folder)
        command = [sys.executable, "-m", "dualgap.cli", "fit", "-q", "rows", "linear"]
        subprocess.run(command, cwd=folder, check=True)
        for name in COMMANDS:
            for number in (signal.SIGINT, *ENDING):
                if wanted(f"dualgap {name}"):
                    outcomes = [signal_command(name, number, folder) for _ in range(options.times)]
                    record(table, f"dualgap {name}", number, outcomes)
    if wanted("consensus, checkpoints"):
        X, y = classes(3000, 30, 8)
        data = X + y[:, None] * X[:1], y
        whole = consensus().fit(*data)
        for number in (signal.SIGINT, *ENDING, signal.SIGKILL):
            outcomes = [signal_consensus(number, data, whole) for _ in range(options.times)]
            record(table, "consensus, checkpoints", number, outcomes)


if __name__ == "__main__":
    main()
