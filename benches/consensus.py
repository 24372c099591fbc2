"""Consensus training against one machine: optimum, rounds, processes, lost workers.

python benches/consensus.py {optimum,processes,memory,killed}

"optimum" reads the data that benches/block_descent.py describes.
"""

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
from block_descent import load
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from dualgap import MulticlassSVC
from dualgap.distributed import ConsensusSVC


def generated(n, d, m, seed=0):
    """Gaussian classes around random centres."""
    centres = np.random.default_rng(99).normal(size=(m, d)) / np.sqrt(d)
    rng = np.random.default_rng(seed)
    y = rng.integers(m, size=n)
    X = centres[y] + rng.normal(scale=0.7, size=(n, d)) / np.sqrt(d)
    return X.astype(np.float32), y


def fit(model, X, y):
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    return time.perf_counter() - started


def optimum(wanted=None):
    """Difference of the primal objective from the plain solver's, relative, at the same C."""
    print("| data | C | partitions | rounds | seconds | plain s | rel. difference | gap / null |")
    print("|---|---|---|---|---|---|---|---|")
    for name in ("letter", "news20", "aloi", "mnist"):
        if wanted is not None and name != wanted:
            continue
        X, y = load(name)
        X, C = X.astype(np.float32), 0.05
        plain = MulticlassSVC(C=C, tol=2e-4, random_state=0)
        alone = fit(plain, X, y)
        for n_partitions in (2, 4, 8, 16):
            model = ConsensusSVC(C=C, tol=3e-4, n_partitions=n_partitions, max_iter=300, n_jobs=2)
            seconds = fit(model, X, y)
            difference = (model.objective_ - plain.objective_) / plain.objective_
            gap = model.duality_gap_ / model.null_objective_
            print(
                f"| {name} | {C} | {n_partitions} | {model.n_iter_} | {seconds:.1f} | {alone:.1f} "
                f"| {difference:+.1e} | {gap:.1e} |",
                flush=True,
            )


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


def processes():
    """Wall time to the same gap with one worker process and with two; share outside of solving."""
    import distributed

    X, y = generated(60_000, 200, 50)
    print("| workers | seconds (3 fits) | rounds | share of time outside of sub-problems |")
    print("|---|---|---|---|")
    for n_workers in (1, 2):
        with cluster(n_workers) as local, distributed.Client(local) as client:
            seconds = []
            for _ in range(3):
                model = ConsensusSVC(C=0.05, tol=2e-3, n_partitions=2, client=client)
                fit(model, X, y)
                seconds.append(model.history_["seconds"][-1])
            # One worker solves its two partitions one after the other.
            busy = model.history_["solve_seconds"].sum() * 2 / n_workers
            share = max(0.0, 1.0 - busy / seconds[-1])
            times = ", ".join(f"{s:.1f}" for s in seconds)
            print(f"| {n_workers} | {times} | {model.n_iter_} | {share:.0%} |", flush=True)


def memory(n_files="24"):
    """Parquet files whose rows exceed the memory limits of both workers together."""
    import distributed
    import pandas as pd

    limit = 400
    with tempfile.TemporaryDirectory() as folder:
        paths, n_bytes = [], 0
        for number in range(int(n_files)):
            X, y = generated(60_000, 200, 10, seed=number)
            n_bytes += X.nbytes
            table = pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
            paths.append(f"{folder}/{number}.parquet")
            table.assign(label=y).to_parquet(paths[-1])
        limits = {"memory_limit": f"{limit}MiB", "local_directory": folder}
        with cluster(2, **limits) as local, distributed.Client(local) as client:
            pids = set(client.run(os.getpid).values())
            model = ConsensusSVC(C=0.01, tol=1e-2, client=client, verbose=1)
            seconds = fit(model, paths, "label")
            n_lost = len(pids - set(client.run(os.getpid).values()))
            peak = max(client.run(peak_memory).values())
        print(f"{n_bytes / 2**20:.0f} MiB of rows, 2 x {limit} MiB: converged {model.converged_}, ")
        print(f"{model.n_iter_} rounds, {seconds:.1f} s, peak {peak:.0f} MiB, {n_lost} workers lost")


def peak_memory():
    """Largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def killed(n_runs="20"):
    """Kill a worker at a random moment: arrays (scattered) and Parquet files (read) in turns."""
    import dask
    import distributed
    import pandas as pd

    # A LocalCluster gives a lost worker up after 15 s, even if it happens to be starting anew then.
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
        length = 2.0
        for run in range(int(n_runs)):
            client.wait_for_workers(2)
            pids = list(client.run(os.getpid).values())
            moment = chance.uniform(0.0, length)
            timer = threading.Timer(moment, os.kill, (chance.choice(pids), signal.SIGKILL))
            timer.start()
            model = ConsensusSVC(C=0.05, tol=1e-3, n_partitions=4, client=client)
            seconds = fit(model, *sources[run % 2])
            timer.join()
            n_converged += model.converged_
            n_hit += seconds > moment
            differences.append(abs(model.objective_ / plain.objective_ - 1.0))
            print(f"killed at {moment:.2f} s of {seconds:.2f} s, {model.n_iter_} rounds", flush=True)
            while set(pids) <= set(client.run(os.getpid, on_error="ignore").values()):
                time.sleep(0.1)
    worst = max(differences)
    print(f"{n_converged} of {n_runs} fits converged, {n_hit} killed before the end; ", end="")
    print(f"largest relative difference {worst:.1e}")


if __name__ == "__main__":
    globals()[sys.argv[1] if len(sys.argv) > 1 else "optimum"](*sys.argv[2:])
