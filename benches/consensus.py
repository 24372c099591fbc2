"""Consensus training compared with one machine: optimum, rounds, processes, lost workers.

    python benches/consensus.py optimum [letter news20 aloi mnist] [--plot FILE]
    python benches/consensus.py {penalty,processes,memory,killed,model,pays,logistic}
    python benches/consensus.py {solvers,speedup,accuracy}

"optimum", "penalty" and the last three commands need the data sets of benches/block_descent.py.
"""

import itertools
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import warnings

import numpy as np
from _data import split
from _record import Table, data_folder
from block_descent import load
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from dualgap import LogisticRegression, MulticlassSVC
from dualgap.distributed import ConsensusLogisticRegression, ConsensusSVC


def generated(n, d, m, seed=0, noise=0.7):
    """Generate Gaussian classes around random centres."""
    centres = np.random.default_rng(99).normal(size=(m, d)) / np.sqrt(d)
    rng = np.random.default_rng(seed)
    y = rng.integers(m, size=n)
    X = centres[y].astype(np.float32)
    X += rng.normal(scale=noise, size=(n, d)).astype(np.float32) / np.sqrt(np.float32(d))
    return X, y


def fit(model, X, y):
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    return time.perf_counter() - started


def optimum(*arguments):
    """Measure rounds and seconds until the objective and the gap are small.

    The objective must be at most 1.001 times the objective of the plain solver, and the gap at most
    1e-3 times the null objective. `--plot FILE` draws curves.
    """
    plot = arguments[-1] if "--plot" in arguments else None
    names = arguments[: arguments.index("--plot")] if plot else arguments
    curves, table = {}, Table("consensus-optimum", "data", "partitions")
    known = ("letter", "news20", "aloi", "mnist") if data_folder() else ("letter", "news20")
    for name in names or known:
        X, y = load(name)
        X, C = X.astype(np.float32), 0.05
        plain = MulticlassSVC(C=C, tol=2e-4, random_state=0)
        alone, optimum = fit(plain, X, y), plain.objective_
        curves[name] = {}
        for n_partitions in (2, 4, 8, 16):
            goal = optimum * (1 + 1e-3)
            goals = Goals(goal, 1e-3, 80.0)
            model = ConsensusSVC(C=C, tol=0.0, n_partitions=n_partitions, callback=goals, n_jobs=2)
            fit(model, X, y)
            history, null = model.history_, model.null_objective_
            best = np.minimum.accumulate(history["objective"])
            rounds, seconds = first(history, best <= goal)
            gap_rounds, gap_seconds = first(history, history["gap"] <= 1e-3 * null)
            table.add(
                data=name,
                plain_seconds=alone,
                partitions=n_partitions,
                objective_rounds=rounds,
                objective_seconds=seconds,
                gap_rounds=gap_rounds,
                gap_seconds=gap_seconds,
                difference=(model.objective_ - optimum) / optimum,
                C=C,
            )
            curves[name][n_partitions] = (history["seconds"], history["gap"] / null)
    if plot:
        draw(curves, plot)


def solvers():
    """Compare block descent with the sequential dual method, on four partitions."""
    table = Table("consensus-solvers", "data", "solver")
    for name in ("letter", "satimage", "news20", "dna", "segment"):
        X, y = load(name)
        for solver in ("block-descent", "sequential-dual"):
            model = ConsensusSVC(
                C=0.05,
                tol=1e-3,
                n_partitions=4,
                solver=solver,
                random_state=0,
                n_jobs=2,
                max_iter=500,
            )
            seconds = fit(model, X.astype(np.float32), y)
            history = model.history_
            table.add(
                data=name,
                solver=solver,
                seconds=seconds,
                rounds=model.n_iter_,
                passes=history["passes"].sum(),
                seconds_5=history["solve_seconds"][:5].sum(),
                passes_5=history["passes"][:5].sum(),
                relative_gap=model.relative_gap_,
            )


def speedup():
    """Measure seconds of a partition's solver and of the fit, with one and two threads."""
    table = Table("consensus-speedup", "partitions")
    X, y = load("letter")
    X = X.astype(np.float32)
    for n_partitions in (1, 2, 4, 8):
        row = {}
        for n_jobs in (1, 2):
            model = ConsensusSVC(
                C=0.05, tol=1e-3, n_partitions=n_partitions, random_state=0, n_jobs=n_jobs
            )
            row[f"seconds_{n_jobs}"] = np.median([fit(model, X, y) for _ in range(3)])
        table.add(
            partitions=n_partitions,
            rounds=model.n_iter_,
            **row,
            speedup=row["seconds_1"] / row["seconds_2"],
        )


def pays():
    """Compare the processor time of consensus training with that of the plain solver."""
    sizes = [(5_000, 50, 5), (100_000, 50, 5), (20_000, 300, 30), (20_000, 100, 100)]
    compare("consensus-pays", sizes, MulticlassSVC, ConsensusSVC)


def logistic():
    """Compare the processor time of both logistic regressions."""
    sizes = [(5_000, 50, 5), (100_000, 50, 5), (20_000, 100, 30)]
    compare("consensus-logistic", sizes, LogisticRegression, ConsensusLogisticRegression)


def compare(name, sizes, plain_kind, consensus_kind):
    """Fit generated data to the same gap on one thread, plainly and on partitions."""
    table = Table(name, "rows", "features", "classes", "partitions")
    for (n, d, m), n_partitions in itertools.product(sizes, (2, 8)):
        X, y = generated(n, d, m)
        shared = {"C": 0.1, "tol": 1e-3, "random_state": 0, "n_jobs": 1}
        consensus = consensus_kind(n_partitions=n_partitions, **shared)
        seconds = []
        for model in (plain_kind(**shared), consensus):
            times = []
            for _ in range(3):
                started = time.process_time()
                fit(model, X, y)
                times.append(time.process_time() - started)
            seconds.append(min(times))
        table.add(
            rows=n,
            features=d,
            classes=m,
            partitions=n_partitions,
            rows_mb=X.nbytes / 2**20,
            plain=seconds[0],
            consensus=seconds[1],
            rounds=consensus.n_iter_,
            ratio=seconds[1] / seconds[0],
        )


def accuracy():
    """Compare the test accuracy after 1 to 40 rounds of consensus with that of the plain solver."""
    table = Table("consensus-accuracy", "data", "partitions")
    for name in ("letter", "satimage"):
        X, y, *test = split(name)
        X, test[0] = X.astype(np.float32), test[0].astype(np.float32)
        plain = MulticlassSVC(C=0.05, tol=1e-4, random_state=0)
        fit(plain, X, y)
        for n_partitions in (2, 8):
            row = {}
            for rounds in (1, 2, 5, 10, 20, 40):
                model = ConsensusSVC(
                    C=0.05, tol=0.0, n_partitions=n_partitions, max_iter=rounds, random_state=0
                )
                fit(model, X, y)
                row[f"after_{rounds}"] = 100 * model.score(*test)
            table.add(data=name, partitions=n_partitions, **row, plain=100 * plain.score(*test))


class Goals:
    """Callback that ends a fit as soon as its objective and gap are small enough."""

    def __init__(self, objective, gap, seconds):
        self.objective, self.gap, self.seconds = objective, gap, seconds
        self.null, self.primal, self.dual = None, np.inf, -np.inf

    def __call__(self, _, seconds, primal, dual):
        self.null = primal if self.null is None else self.null
        self.primal = min(self.primal, primal)
        self.dual = self.dual if np.isnan(dual) else max(self.dual, dual)
        near = self.primal - self.dual <= self.gap * self.null and self.primal <= self.objective
        return near or seconds > self.seconds


def first(history, mask):
    """Return the number and the seconds of the first round that satisfies a condition."""
    rounds = np.flatnonzero(mask)
    if not len(rounds):
        return None, None
    return history["epoch"][rounds[0]], history["seconds"][rounds[0]]


def draw(curves, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    _, axes = pyplot.subplots(2, len(curves), figsize=(4 * len(curves), 6), squeeze=False)
    for column, (name, fits) in zip(axes.T, curves.items(), strict=True):
        for n_partitions, (seconds, gaps) in fits.items():
            rounds = np.arange(1, len(gaps) + 1)
            for axis, x in zip(column, (rounds, seconds), strict=True):
                axis.semilogy(x, gaps, label=f"{n_partitions} partitions")
        column[0].set(title=name, xlabel="rounds")
        column[1].set(xlabel="seconds")
    axes[0, 0].set(ylabel="gap / null objective")
    axes[1, 0].set(ylabel="gap / null objective")
    axes[0, 0].legend()
    pyplot.tight_layout()
    pyplot.savefig(path, dpi=80)


def penalty():
    """Count rounds to a gap of 1e-3 (at most 150) with fixed and with adaptive penalties."""
    fixed = (3, 10, 30, 100)
    table = Table("consensus-penalty", "data", "C", "partitions")
    problems = [("digits", 0.05, 4), ("digits", 1.0, 4), ("digits", 1.0, 16)]
    problems += [("satimage", 0.1, 8), ("satimage", 2.0, 8), ("news20", 0.05, 8)]
    problems += [("letter", 0.05, 2), ("letter", 0.05, 16), ("letter", 1.0, 8)]
    for name, C, n_partitions in problems:
        X, y = load_digits(return_X_y=True) if name == "digits" else load(name)
        X = (X / 16.0 if name == "digits" else X).astype(np.float32)
        rounds = {}
        for factor in (*fixed, None):
            model = ConsensusSVC(C=C, n_partitions=n_partitions, max_iter=150, random_state=0)
            if factor is not None:
                model.set_params(rho=factor / (C * len(y)), adapt_rho=False)
            fit(model, X, y)
            column = "rule" if factor is None else f"fixed_{factor}"
            rounds[column] = model.n_iter_ if model.converged_ else "> 150"
        table.add(data=name, C=C, partitions=n_partitions, **rounds)


def cluster(n_workers, **options):
    import distributed

    return distributed.LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        silence_logs=50,
        **options,
    )


def processes(n_rows="100000"):
    """Measure the wall time of fits on one and two worker processes, and the overhead."""
    import distributed

    X, y = generated(int(n_rows), 200, 50)
    table = Table("consensus-processes", "workers")
    for n_workers in (1, 2):
        with cluster(n_workers) as local, distributed.Client(local) as client:
            seconds, whole = [], []
            for _ in range(3):
                model = ConsensusSVC(C=0.05, tol=1e-3, n_partitions=2, client=client)
                whole.append(fit(model, X, y))
                seconds.append(model.history_["seconds"][-1])
            # One worker solves two partitions one after the other, and each takes about as long.
            busy = model.history_["solve_seconds"].sum() * 2 / n_workers
            table.add(
                workers=n_workers,
                seconds=np.median(seconds),
                minimum_seconds=min(seconds),
                maximum_seconds=max(seconds),
                with_scattering=np.median(whole),
                rounds=model.n_iter_,
                outside_of_solving=max(0.0, 1.0 - busy / seconds[-1]),
            )


def model():
    """Compare seconds per round with the cost model of docs/consensus.md.

    Every second setting is used to fit the constants of the model, the other settings to check it.
    The model then predicts the seconds of a round on up to 1000 workers.
    """
    from scipy.optimize import nnls

    settings, measured = rounds_measured()
    rows = np.array([terms(*setting) for setting in settings])
    some = np.arange(len(measured)) % 2 == 0
    # Dividing by the measured seconds makes `nnls` minimise relative errors.
    constants, _ = nnls(rows[some] / measured[some, None], np.ones(some.sum()))
    predicted = rows @ constants
    table = Table("consensus-model", "features", "classes", "partitions")
    for (_, d, m, n_partitions, _, passes), seconds, guess in zip(
        settings, measured, predicted, strict=True
    ):
        table.add(
            features=d,
            classes=m,
            partitions=n_partitions,
            passes=passes,
            seconds=seconds,
            model=guess,
        )
    error = np.abs(predicted / measured - 1.0)[~some]
    print(f"relative error: median {np.median(error):.0%}, maximum {error.max():.0%}")
    print("constants", " ".join(f"{constant:.2e}" for constant in constants))
    extrapolate(constants)


def rounds_measured():
    """Measure the median seconds of a round on two workers for several settings."""
    import distributed

    n, n_workers, settings, measured = 20_000, 2, [], []
    every = itertools.product((100, 400, 1600), (10, 100))
    with cluster(n_workers) as local, distributed.Client(local) as client:
        for d, m in every:
            X, y = generated(n, d, m)
            for n_partitions in (2, 4, 8, 16):
                fitted = ConsensusSVC(
                    C=0.05, tol=0.0, n_partitions=n_partitions, max_iter=9, client=client
                )
                fit(fitted, X, y)
                history = fitted.history_
                measured.append(np.median(np.diff(history["seconds"])[2:]))
                settings.append((n, d, m, n_partitions, n_workers, history["passes"][3:].mean()))
    return settings, np.array(measured)


def extrapolate(constants):
    """Predict the seconds of a round on more workers than are available.

    Each worker has one partition.
    """
    table = Table("consensus-extrapolated", "rows", "features", "classes", "workers")
    sizes = ((10**9, 1000, 10), (10**8, 1000, 1000))
    for (n_rows, d, m), n_workers in itertools.product(sizes, (10, 100, 1000)):
        row = terms(n_rows, d, m, n_workers, n_workers, 4.0) * constants
        # Vectors travel at 1 GB/s: sums go up a tree in groups of four, and the consensus goes down
        # a binary tree.
        network = 8 * m * d * (4 * np.log(n_workers) / np.log(4) + np.log2(n_workers)) / 1e9
        total = row.sum() + network
        table.add(
            rows=f"{n_rows:.0e}".replace("+0", ""),
            features=d,
            classes=m,
            workers=n_workers,
            seconds=total,
            task_share=row[3] / total,
        )


def terms(n, d, m, n_partitions, n_workers, passes):
    """Return the regressors: multiply-adds, values read, a worker's vectors, tasks, and 1."""
    rows = (passes + 3) * n * d / n_workers
    return np.array([rows * m, rows, m * d * n_partitions / n_workers, n_partitions, 1.0])


def memory(n_files="40"):
    """Fit Parquet files whose rows exceed the memory limits of both workers together."""
    import distributed
    import pandas as pd

    limit = 400
    with tempfile.TemporaryDirectory() as folder:
        paths, n_bytes = [], 0
        for number in range(int(n_files)):
            X, y = generated(30_000, 200, 10, seed=number, noise=3.0)
            n_bytes += X.nbytes
            table = pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
            paths.append(f"{folder}/{number}.parquet")
            table.assign(label=y).to_parquet(paths[-1])
        limits = {"memory_limit": f"{limit}MiB", "local_directory": folder}
        with cluster(2, **limits) as local, distributed.Client(local) as client:
            pids = set(client.run(os.getpid).values())
            model = ConsensusSVC(C=0.01, tol=1e-3, client=client)
            seconds = fit(model, paths, "label")
            n_lost = len(pids - set(client.run(os.getpid).values()))
            peak = max(client.run(peak_memory).values())
        Table("consensus-memory").add(
            rows_mib=n_bytes / 2**20,
            limit_mib=limit,
            converged=model.converged_,
            rounds=model.n_iter_,
            seconds=seconds,
            peak_mib=peak,
            lost=n_lost,
        )


def peak_memory():
    """Return the peak resident memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def killed(n_runs="20"):
    """Kill a worker at random moments, with scattered arrays and with Parquet files."""
    import dask
    import distributed
    import pandas as pd

    # A LocalCluster gives up on a lost worker after 15 s, even if the worker is restarting.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    plain = MulticlassSVC(C=0.05, tol=1e-5, random_state=0, max_iter=5000)
    fit(plain, X, y)
    n_converged, n_hit, differences = 0, 0, []
    chance = random.Random(0)
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster(2) as local,
        distributed.Client(local) as client,
    ):
        table = pd.DataFrame(X, columns=[f"x{k}" for k in range(64)]).assign(label=y)
        paths = [f"{folder}/{number}.parquet" for number in range(4)]
        for number, path in enumerate(paths):
            table[number::4].to_parquet(path)
        sources = ((X, y), (paths, "label"))
        dead = set()
        model = ConsensusSVC(C=0.05, tol=1e-4, n_partitions=4, client=client)
        length = fit(model, X, y)
        for run in range(int(n_runs)):
            while len(pids := set(client.run(os.getpid, on_error="ignore").values()) - dead) < 2:
                time.sleep(0.1)
            moment, pid = chance.uniform(0.0, length), chance.choice(sorted(pids))
            dead.add(pid)
            timer = threading.Timer(moment, os.kill, (pid, signal.SIGKILL))
            timer.start()
            seconds = fit(model, *sources[run % 2])
            timer.join()
            n_converged += model.converged_
            n_hit += seconds > moment
            differences.append(abs(model.objective_ / plain.objective_ - 1.0))
            print(f"at {moment:.2f} s of {seconds:.2f} s, {model.n_iter_} rounds", flush=True)
    Table("consensus-killed").add(
        fits=n_runs, converged=n_converged, hit=n_hit, difference=max(differences)
    )


if __name__ == "__main__":
    globals()[sys.argv[1] if len(sys.argv) > 1 else "optimum"](*sys.argv[2:])
