"""SequenceTagger and other packages for conditional random fields on four tasks.

    python benches/taggers.py [SYSTEM ...] [--tasks NAME ...] [--repeats 1] [--limit 300]
    python benches/taggers.py --notebook [SYSTEM ...]  # all systems and three more

Tasks: chunks (CoNLL-2000), names in Spanish newswire (CoNLL-2002), parts of speech of English web
text, and letters of handwritten words. All systems read the same features as Python strings: those
of `dualgap.sequence.word_features`, or the black pixels of a letter. Each system runs with its
defaults in a separate process, except that CRFsuite's online algorithms, chaine and crfs are
limited to 20 passes, as their names in the table state. "C chosen" is `C="validation"`.
Seconds are the time from strings to a trained model; CPU seconds are summed over threads. The score
is F1 of chunks, or the fraction of correct tokens. Missing packages, and fits of more than
`--limit` seconds, are skipped (pip install python-crfsuite sklearn-crfsuite chaine
underthesea_core). The crate crfs is built with cargo from benches/crfs.

With `--notebook`, all systems and three more run on the features of words of python-crfsuite's
notebook. "L1" is an L1 penalty of the same strength in both programs. The results are in a separate
table.

The data sets are files in the folder DUALGAP_DATA. Generated sentences replace missing files.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _data import generated_words, path_of, text_of
from _record import Table, installed
from sequence import Labels, Sentences, f1, timed

Data = tuple[Sentences, Labels, Sentences, Labels]

TEXTS = {"chunks": "conll2000", "names": "conll2002_es", "parts of speech": "ud_ewt_pos"}
TASKS = [*TEXTS, "letters"]
CRFS = "crfs, pa, 20 passes"
CRFS_FOLDER = Path(__file__).parent / "crfs"
TARGET = Path(__file__).parents[1] / "target" / "crfs"


def read(task: str, *, is_notebook: bool = False) -> Data:
    """Return the features and labels of the training sentences and of the test sentences."""
    if task == "letters":
        return letters()
    from _tagger_tasks import notebook, words

    from dualgap.sequence import read_conll

    features = notebook if is_notebook else words

    found: list[Any] = []
    for part in ("train", "test"):
        sentences = list(read_conll(io.BytesIO(text_of(TEXTS[task], part))))
        found.append(features(sentences))
        found.append([[token[-1] for token in s] for s in sentences])
    return found[0], found[1], found[2], found[3]


def letters() -> Data:
    """Return black pixels and letters, with a tenth of the words as test words."""
    path = path_of("ocr_letters")
    data: Any = generated_words() if path is None else np.load(path)
    pixels, numbers, offsets = data["pixels"], data["labels"].tolist(), data["offsets"]
    found: tuple[Any, ...] = ([], [], [], [])
    for word, fold in enumerate(data["folds"]):
        rows = range(offsets[word], offsets[word + 1])
        X, y = found[2:] if fold == 0 else found[:2]
        X.append([[f"p{pixel}" for pixel in np.flatnonzero(pixels[row])] for row in rows])
        y.append([chr(97 + numbers[row]) for row in rows])
    return found[0], found[1], found[2], found[3]


def dualgap(loss: str, **options: Any) -> Callable[..., Any]:
    def run(X: Sentences, y: Labels, path: Path) -> Any:
        from dualgap.sequence import SequenceTagger

        warnings.simplefilter("ignore")
        tagger = SequenceTagger(loss, random_state=0, **options).fit(X, y)
        facts = {"passes": tagger.n_iter_, "dual_objective": tagger.dual_objective_}
        return tagger.predict, lambda: tagger.save(path), facts

    return run


def crfsuite(algorithm: str, **options: Any) -> Callable[..., Any]:
    def run(X: Sentences, y: Labels, path: Path) -> Any:
        import pycrfsuite

        trainer = pycrfsuite.Trainer(algorithm=algorithm, params=options, verbose=False)
        for tokens, labels in zip(X, y, strict=True):
            trainer.append(tokens, labels)
        trainer.train(str(path))
        tagger = pycrfsuite.Tagger()
        tagger.open(str(path))
        facts = {"passes": len(trainer.logparser.iterations)}
        return lambda test: [tagger.tag(tokens) for tokens in test], None, facts

    return run


def sklearn_crfsuite(algorithm: str, **options: Any) -> Callable[..., Any]:
    def run(X: Sentences, y: Labels, path: Path) -> Any:
        from sklearn_crfsuite import CRF

        return CRF(algorithm, model_filename=str(path), **options).fit(X, y).predict, None, {}

    return run


def chaine(algorithm: str, **options: Any) -> Callable[..., Any]:
    def run(X: Sentences, y: Labels, path: Path) -> Any:
        import chaine as package

        def mappings(sentences: Sentences) -> Any:
            return [[dict.fromkeys(token, True) for token in tokens] for tokens in sentences]

        settings = {"algorithm": algorithm, "verbose": 0, **options}
        model = package.train(mappings(X), y, model_filepath=str(path), **settings)
        return lambda test: model.predict(mappings(test)), None, {}

    return run


def underthesea(X: Sentences, y: Labels, path: Path) -> Any:
    from underthesea_core import CRFTagger, CRFTrainer

    model = CRFTrainer(verbose=0).train(X, y)
    model.save(str(path))
    tagger = CRFTagger.from_model(model)
    return lambda test: [tagger.tag(tokens) for tokens in test], None, {}


def crfs(data: Data, folder: Path) -> dict[str, Any]:
    """Train and tag with the crate crfs; return its numbers and the predicted labels."""
    paths = [folder / name for name in ("train.txt", "test.txt", "model", "labels.txt")]
    for path, X, y in ((paths[0], *data[:2]), (paths[1], *data[2:])):
        tokens = [
            ["\t".join([label, *token]) for token, label in zip(*sentence, strict=True)]
            for sentence in zip(X, y, strict=True)
        ]
        path.write_text("\n\n".join(map("\n".join, tokens)), encoding="utf-8")
    command = [str(TARGET / "release" / "crfs-benchmark"), *map(str, paths)]
    found: dict[str, Any] = json.loads(subprocess.check_output(command, text=True))
    labels = iter(paths[3].read_text(encoding="utf-8").split("\n"))
    found["predicted"] = [[next(labels) for _ in tokens] for tokens in data[2]]
    return {**found, "cpu_seconds": found["seconds"], "model_mb": paths[2].stat().st_size / 1e6}


def programs(module: str) -> tuple[str, ...]:
    """Return name and version of a package, or of the crate crfs."""
    if module:
        return installed(module)
    found = re.search(r"(crfs) = \"=(.*)\"", (CRFS_FOLDER / "Cargo.toml").read_text("utf-8"))
    assert found is not None
    return (" ".join(found.groups()),)


def build_crfs() -> bool:
    """Build the program that uses crfs; return whether that worked."""
    package = str(CRFS_FOLDER / "Cargo.toml")
    command = ["cargo", "build", "--release", "--quiet", "--manifest-path", package]
    done = shutil.which("cargo") and subprocess.run([*command, "--target-dir", str(TARGET)])
    return bool(done) and done.returncode == 0


SYSTEMS: dict[str, tuple[str, Callable[..., Any]]] = {
    "dualgap, hamming": ("dualgap", dualgap("hamming")),
    "dualgap, logistic": ("dualgap", dualgap("logistic")),
    "dualgap, logistic, all pairs": ("dualgap", dualgap("logistic", pairs="all")),
    "dualgap, hamming, C chosen": ("dualgap", dualgap("hamming", C="validation")),
    "dualgap, logistic, C chosen": ("dualgap", dualgap("logistic", C="validation")),
    "python-crfsuite, pa, 20 passes": ("pycrfsuite", crfsuite("pa", max_iterations=20)),
    "python-crfsuite, ap, 20 passes": ("pycrfsuite", crfsuite("ap", max_iterations=20)),
    "python-crfsuite, arow, 20 passes": ("pycrfsuite", crfsuite("arow", max_iterations=20)),
    "python-crfsuite, lbfgs": ("pycrfsuite", crfsuite("lbfgs")),
    "sklearn-crfsuite, pa, 20 passes": (
        "sklearn_crfsuite",
        sklearn_crfsuite("pa", max_iterations=20),
    ),
    "chaine, pa, 20 passes": ("chaine", chaine("pa", max_iterations=20)),
    "underthesea_core": ("underthesea_core", underthesea),
    CRFS: ("", crfs),
}
NOTEBOOK: dict[str, tuple[str, Callable[..., Any]]] = {
    "dualgap, logistic, L1": ("dualgap", dualgap("logistic", penalty="l1", C=2.0)),
    "python-crfsuite, lbfgs, L1": ("pycrfsuite", crfsuite("lbfgs", c1=0.5, c2=0.0)),
    "python-crfsuite, lbfgs, L1 and L2": ("pycrfsuite", crfsuite("lbfgs", c1=0.1, c2=0.001)),
}


def child(system: str, task: str, *, is_notebook: bool) -> None:
    """Run one system on one task and print its results."""
    sys.modules["pandas"] = None  # type: ignore[assignment]
    data = read(task, is_notebook=is_notebook)
    with tempfile.TemporaryDirectory() as temporary:
        if system == CRFS:
            found = crfs(data, Path(temporary))
        else:
            found = trained((SYSTEMS | NOTEBOOK)[system][1], data, Path(temporary) / "model.npz")
    test, right = data[2:]
    predicted = found.pop("predicted")
    found["tokens_per_second"] = sum(map(len, test)) / found.pop("tag_seconds")
    if task in ("chunks", "names"):
        found["score"] = f1(right, predicted)
    else:
        pairs = [(a, b) for pair in zip(right, predicted, strict=True) for a, b in zip(*pair)]  # noqa: B905
        found["score"] = sum(a == b for a, b in pairs) / len(pairs)
    print(json.dumps(found))


def trained(run: Callable[..., Any], data: Data, path: Path) -> dict[str, Any]:
    """Train with one of the Python packages; return its numbers and the predicted labels."""
    X, y, test, _ = data
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start, cpu = time.perf_counter(), time.process_time()
    predict, save, facts = run(X, y, path)
    found: dict[str, Any] = {"seconds": time.perf_counter() - start, **facts}
    found["cpu_seconds"] = time.process_time() - cpu
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    found |= timed(lambda: predict(test))
    if save is not None:
        save()
    return {**found, "model_mb": path.stat().st_size / 1e6}


def measured(system: str, task: str, limit: float, *, is_notebook: bool) -> dict[str, Any] | None:
    """Run one system in a separate process; return its results, or None if it fails or is slow."""
    command = [sys.executable, __file__, "--child", system, "--tasks", task]
    command += ["--notebook"] * is_notebook
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        print(f"{system}, {task}: more than {limit:.0f} s; skipped")
        return None
    if done.returncode != 0:
        print(f"{system}, {task}: {done.stderr.splitlines()[-1]}; skipped")
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


CLOCKS = ("seconds", "cpu_seconds", "tokens_per_second", "peak_mb")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("systems", nargs="*", metavar="SYSTEM")
    parser.add_argument("--tasks", nargs="+", choices=TASKS)
    parser.add_argument("--notebook", action="store_true")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--child", action="store_true")
    arguments = parser.parse_args()
    is_notebook, systems = arguments.notebook, SYSTEMS | NOTEBOOK
    if arguments.child:
        child(arguments.systems[0], arguments.tasks[0], is_notebook=is_notebook)
        return
    table = Table("taggers-notebook" if is_notebook else "taggers", "task", "system")
    for task in arguments.tasks or (TEXTS if is_notebook else TASKS):
        path_of(TEXTS.get(task, "ocr_letters"))  # if there is no file, results go elsewhere
        for system in arguments.systems or (systems if is_notebook else SYSTEMS):
            package = systems[system][0]
            if not (build_crfs() if system == CRFS else importlib.util.find_spec(package)):
                print(f"{system}: not installed; skipped")
                continue
            found = [
                measured(system, task, arguments.limit, is_notebook=is_notebook)
                for _ in range(arguments.repeats)
            ]
            runs = [run for run in found if run is not None]
            if not runs:
                continue
            clocks = {key: float(np.median([run[key] for run in runs])) for key in CLOCKS}
            own = {} if package == "dualgap" else {"simd": "", "programs": programs(package)}
            table.add(task=task, system=system, runs=len(runs), **{**runs[0], **clocks}, **own)


if __name__ == "__main__":
    main()
