"""SequenceTagger, python-crfsuite and sklearn-crfsuite on CoNLL-2000 chunking.

    python benches/sequence.py [SYSTEM ...] [--repeats 3]   # default: all systems

Each system runs in a separate process: it reads the features of the 8936 training sentences as
Python strings (CRFsuite's templates), trains, and labels the 2012 test sentences. The script
computes the F1 score of chunks for all systems. Each system uses its defaults, or the number of
passes in its name; "log, as CRFsuite" has CRFsuite's regularisation. Seconds, tokens per second (of
five predictions each) and memory are medians over the repeats. "From matrices" has the same
features as a CSR matrix, built before the measurement. pandas (65 MB), which scikit-learn imports
if it is installed, is hidden from all systems, since none needs it. Missing packages are skipped
(pip install python-crfsuite sklearn-crfsuite).

The data set is conll2000.zip in the folder DUALGAP_DATA. Generated sentences replace it if it is
missing.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from array import array
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from _data import path_of, text_of
from _record import Table, installed

Sentences = list[list[list[str]]]
Labels = list[list[str]]

FIELDS = {"w": 0, "pos": 1}
TEMPLATES = [
    "w-2 w-1 w0 w1 w2 w-1|w0 w0|w1",
    "pos-2 pos-1 pos0 pos1 pos2 pos-2|pos-1 pos-1|pos0 pos0|pos1 pos1|pos2",
    "pos-2|pos-1|pos0 pos-1|pos0|pos1 pos0|pos1|pos2",
]


def read(name: str) -> tuple[Sentences, Labels]:
    """Return features and labels of the sentences of one file."""
    text = text_of("conll2000", name).decode()
    blocks = [block for block in text.split("\n\n") if block.strip()]
    tokens = [[line.split() for line in block.strip().splitlines()] for block in blocks]
    return [features(sentence) for sentence in tokens], [[t[2] for t in s] for s in tokens]


def features(sentence: list[list[str]]) -> list[list[str]]:
    """Return the features of CRFsuite's example for chunking."""
    found: list[list[str]] = [[] for _ in sentence]
    for template in " ".join(TEMPLATES).split():
        parts = []
        for part in template.split("|"):
            field = "pos" if part.startswith("pos") else "w"
            parts.append((FIELDS[field], int(part.removeprefix(field))))
        for t, row in enumerate(found):
            if all(0 <= t + offset < len(sentence) for _, offset in parts):
                words = [sentence[t + offset][column] for column, offset in parts]
                row.append(f"{template}={'|'.join(words)}")
    found[0].append("__BOS__")
    found[-1].append("__EOS__")
    return found


def chunks(labels: list[str]) -> set[tuple[int, int, str]]:
    """Return the chunks of a sentence: start, end and type."""
    found, start, kind = set(), 0, ""
    for t, label in enumerate([*labels, "O"]):
        prefix, _, own = label.partition("-")
        if kind and (prefix != "I" or own != kind):
            found.add((start, t, kind))
            kind = ""
        if prefix == "B" or (prefix == "I" and not kind):
            start, kind = t, own
    return found


def f1(right: Labels, predicted: Labels) -> float:
    pairs = [(chunks(a), chunks(b)) for a, b in zip(right, predicted, strict=True)]
    hits, sizes = sum(len(a & b) for a, b in pairs), sum(len(a) + len(b) for a, b in pairs)
    return 2 * hits / sizes


def timed(predict: Callable[[], Any]) -> dict[str, Any]:
    """Return a dictionary with the predictions and the median seconds to compute them."""
    seconds = []
    for _ in range(5):
        gc.collect()
        start = time.perf_counter()
        predicted = predict()
        seconds.append(time.perf_counter() - start)
    return {"predicted": predicted, "tag_seconds": float(np.median(seconds))}


def dualgap(loss: str, **options: Any) -> Callable[..., dict[str, Any]]:
    def run(X: Sentences, y: Labels, test: Sentences, path: Path) -> dict[str, Any]:
        from dualgap.sequence import SequenceTagger

        warnings.simplefilter("ignore")
        start = time.perf_counter()
        tagger = SequenceTagger(loss, random_state=0, **options).fit(X, y)
        found = {"seconds": time.perf_counter() - start, "passes": tagger.n_iter_}
        found |= timed(lambda: tagger.predict(test))
        tagger.save(path)
        scale = tagger.C_ * len(X)
        found["objective"] = tagger.objective_ * scale
        return {**found, "gap": tagger.relative_gap_}

    return run


def as_matrix(sentences: Sentences, columns: dict[str, int], *, new: bool) -> Any:
    """Build one matrix of all tokens; new features are added to `columns`."""
    from scipy.sparse import csr_array

    indices, ends = array("i"), array("q", [0])
    for token in chain.from_iterable(sentences):
        if new:
            own = {columns.setdefault(feature, len(columns)) for feature in token}
        else:
            own = {columns[feature] for feature in token if feature in columns}
        indices.extend(sorted(own))
        ends.append(len(indices))
    parts = np.ones(len(indices)), np.array(indices), np.array(ends)
    return csr_array(parts, shape=(len(ends) - 1, len(columns)))


def matrices(loss: str, **options: Any) -> Callable[..., dict[str, Any]]:
    def run(X: Sentences, y: Labels, test: Sentences, path: Path) -> dict[str, Any]:
        from dualgap.sequence import SequenceTagger

        warnings.simplefilter("ignore")
        columns: dict[str, int] = {}
        rows, test_rows = as_matrix(X, columns, new=True), as_matrix(test, columns, new=False)
        lengths, test_lengths = [len(sentence) for sentence in X], [len(s) for s in test]
        labels = list(chain.from_iterable(y))
        start = time.perf_counter()
        tagger = SequenceTagger(loss, random_state=0, **options)
        tagger.fit(rows, labels, lengths=lengths)
        found = {"seconds": time.perf_counter() - start, "passes": tagger.n_iter_}
        found |= timed(lambda: tagger.predict(test_rows, lengths=test_lengths))
        ends = np.cumsum([0, *test_lengths])
        flat = found["predicted"].tolist()
        found["predicted"] = [flat[a:b] for a, b in pairwise(ends)]
        tagger.save(path)
        found["objective"] = tagger.objective_ * tagger.C_ * len(X)
        return {**found, "gap": tagger.relative_gap_}

    return run


def crfsuite(algorithm: str, **options: Any) -> Callable[..., dict[str, Any]]:
    def run(X: Sentences, y: Labels, test: Sentences, path: Path) -> dict[str, Any]:
        import pycrfsuite

        lines: list[str] = []

        class Trainer(pycrfsuite.Trainer):  # type: ignore[misc]
            def message(self, text: str) -> None:
                lines.append(text)

        start = time.perf_counter()
        trainer = Trainer(algorithm=algorithm, params=options, verbose=True)
        for tokens, labels in zip(X, y, strict=True):
            trainer.append(tokens, labels)
        trainer.train(str(path))
        found: dict[str, Any] = {"seconds": time.perf_counter() - start}
        tagger = pycrfsuite.Tagger()
        tagger.open(str(path))
        found |= timed(lambda: [tagger.tag(tokens) for tokens in test])
        losses = [line for line in lines if line.startswith("Loss:")]
        found["passes"] = len(losses)
        # CRFsuite minimises c2 ||w||^2 + sum of losses, the objective of dualgap divided by C = 1 /
        # (2 c2).
        if algorithm == "lbfgs":
            scale = 1 / (2 * float(options["c2"]))
            found["objective"] = float(losses[-1].split()[1]) * scale
        return found

    return run


def sklearn_crfsuite(algorithm: str, **options: Any) -> Callable[..., dict[str, Any]]:
    def run(X: Sentences, y: Labels, test: Sentences, path: Path) -> dict[str, Any]:
        from sklearn_crfsuite import CRF

        start = time.perf_counter()
        crf = CRF(algorithm, model_filename=str(path), **options).fit(X, y)
        found: dict[str, Any] = {"seconds": time.perf_counter() - start}
        return found | timed(lambda: crf.predict(test))

    return run


SAME: dict[str, Any] = {"pairs": "seen", "transitions": "seen", "boundaries": False}
SYSTEMS: dict[str, Callable[..., dict[str, Any]]] = {
    "dualgap, hamming": dualgap("hamming"),
    "dualgap, hamming, 5 passes": dualgap("hamming", max_iter=5),
    "dualgap, hamming, from matrices": matrices("hamming"),
    "dualgap, log, as CRFsuite": dualgap("logistic", C=0.5, tol=4e-5, max_iter=1000, **SAME),
    "CRFsuite lbfgs": crfsuite("lbfgs", c2=1.0),
    "CRFsuite pa": crfsuite("pa"),
    "CRFsuite pa, 10 passes": crfsuite("pa", max_iterations=10),
    "CRFsuite ap, 10 passes": crfsuite("ap", max_iterations=10),
    "sklearn-crfsuite pa, 10 passes": sklearn_crfsuite("pa", max_iterations=10),
}
# These are slower and less accurate than the systems above.
OTHERS = {
    "CRFsuite l2sgd": crfsuite("l2sgd", c2=1.0),
    "CRFsuite ap": crfsuite("ap"),
    "CRFsuite arow": crfsuite("arow"),
}


def child(name: str) -> None:
    """Run one system and print its results."""
    sys.modules["pandas"] = None  # type: ignore[assignment]
    X, y = read("train")
    test, right = read("test")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "model.npz"
        found = (SYSTEMS | OTHERS)[name](X, y, test, path)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found |= {"model_mb": path.stat().st_size / 1e6, "peak_mb": peak, "strings_mb": before}
    found["f1"] = f1(right, found.pop("predicted"))
    found["tokens_per_second"] = sum(map(len, test)) / found.pop("tag_seconds")
    print(json.dumps(found))


PACKAGES = {"C": "pycrfsuite", "s": "sklearn_crfsuite"}
CLOCKS = ("seconds", "tokens_per_second", "peak_mb", "strings_mb")


def measured(name: str) -> dict[str, Any]:
    """Run one system in a separate process and return its results."""
    command = [sys.executable, __file__, "--child", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", action="store_true")
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.systems[0])
        return
    path_of("conll2000")  # if there is no file, results go elsewhere
    table = Table("sequence", "system")
    names, others = [], []
    for name in arguments.systems:
        package = PACKAGES.get(name[0], "dualgap")
        if importlib.util.find_spec(package) is None:
            print(f"{name}: {package} is not installed; skipped")
            continue
        names.append(name)
        if package != "dualgap":
            others.append(name)
    rounds = [[measured(name) for name in names] for _ in range(arguments.repeats)]
    for name, *runs in zip(names, *rounds, strict=True):
        clocks = {key: float(np.median([run[key] for run in runs])) for key in CLOCKS}
        own = {"simd": "", "programs": installed(PACKAGES[name[0]])} if name in others else {}
        row = {**runs[0], **clocks, **own}
        table.add(system=name, runs=len(runs), **row)


if __name__ == "__main__":
    main()
