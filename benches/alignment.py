"""Word alignment by maximum-weight matching, with features computed from the sentences alone.

    python benches/alignment.py [--max-iter N] [--plot FILE] [--links]

Reads the subfolder hansards of a folder: --data DIR, or the environment variable DUALGAP_DATA.
Without this subfolder, 60 generated pairs replace the sentences. Dice coefficients and frequent
pairs are computed from all sentence pairs, since they need no labels; gold links are used only for
training pairs. Training treats the sure links as the truth. The alignment error rate, by its
definition, also takes possible links into account.

--links compares limits on the number of links per word, for sure links and for all links.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
from _data import generated_pairs, path_of
from _record import Table, data_folder
from scipy.optimize import linear_sum_assignment
from structured import draw

from dualgap.structured import MatchingModel, StructuredSVM
from dualgap.structured._arrays import pair_features

warnings.filterwarnings("ignore", message="stopped after")

COSTS = (1.0, 2.0, 3.0, 5.0, 10.0, 30.0)
CS = (0.01, 0.1, 1.0, 10.0, 100.0)
LINKS = ((1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (5, 5))


def read(folder: Path | None) -> tuple[list[Any], list[Any], list[Any]]:
    """Read sentence pairs without repetitions, their sure links, and all links."""
    pairs, sure, possible = [], [], []
    path = path_of("hansards", folder)
    if path is None:
        texts, golds = generated_pairs()
    else:
        files = (path / f"enfr.{kind}" for kind in ("src-tgt", "gold"))
        texts, golds = (file.read_text("utf-8").splitlines() for file in files)
    for text, gold in dict(zip(texts, golds, strict=True)).items():
        source, target = (side.lower().split() for side in text.split("|||"))
        links = [[*link.replace("p", "-").split("-"), "p" in link] for link in gold.split()]
        points = [(int(a) - 1, int(b) - 1, maybe) for a, b, maybe in links]
        pairs.append((source, target))
        sure.append({(a, b) for a, b, maybe in points if not maybe})
        possible.append({(a, b) for a, b, _ in points})
    return pairs, sure, possible


def features(pairs: list[Any]) -> list[Any]:
    """Compute features of all word pairs of each sentence pair, the Dice coefficient first."""
    left = Counter(a for source, _ in pairs for a in set(source))
    right = Counter(b for _, target in pairs for b in set(target))
    both = Counter((a, b) for s, t in pairs for a in set(s) for b in set(t))
    frequent = [pair for pair, count in both.most_common(4000) if count >= 10]
    frequent.sort(key=lambda p: -2 * both[p] / (left[p[0]] + right[p[1]]))
    known = {pair: index for index, pair in enumerate(frequent[:50])}
    found = []
    for source, target in pairs:
        shape = (len(source), len(target))
        dice = np.array([[2 * both[a, b] / (left[a] + right[b]) for b in target] for a in source])
        padded = np.pad(dice, 1)
        ends = [np.arange(n) / max(n - 1, 1) for n in shape]
        distance = np.abs(np.subtract.outer(*ends))
        words = np.array([[spelling(a, b) for b in target] for a in source])
        identity = np.zeros((*shape, len(known)))
        for i, a in enumerate(source):
            for j, b in enumerate(target):
                if (a, b) in known:
                    identity[i, j, known[a, b]] = 1.0
        rank = np.maximum.outer(dice.max(axis=1), dice.max(axis=0))
        plain = [
            dice,
            np.sqrt(dice),
            dice == rank,
            distance,
            distance**2,
            dice * distance,
            padded[:-2, :-2],
            padded[2:, 2:],
            np.ones(shape),
        ]
        found.append(np.concatenate([np.stack(plain, axis=-1), words, identity], axis=-1))
    return found


def common(a: str, b: str) -> int:
    """Return the length of the common prefix."""
    differs = [x != y for x, y in zip(a, b, strict=False)]
    return [*differs, True].index(True)


def spelling(a: str, b: str) -> list[float]:
    """Return features of the spelling similarity of two words."""
    longest = max(len(a), len(b))
    prefix, suffix = common(a, b) / longest, common(a[::-1], b[::-1]) / longest
    ratio = SequenceMatcher(None, a, b).ratio()
    marks = [not any(c.isalnum() for c in word) for word in (a, b)]
    equal = float(a == b)
    return [prefix, suffix, ratio, equal, float(all(marks)), float(marks[0] != marks[1])]


def error_rate(found: Any, sure: Any, possible: Any) -> float:
    """Return the alignment error rate 1 - (|A and S| + |A and P|) / (|A| + |S|)."""
    links = [{(int(a), int(b)) for a, b in matching} for matching in found]
    hits = sum(len(a & s) + len(a & p) for a, s, p in zip(links, sure, possible, strict=True))
    return 1 - hits / sum(len(a) + len(s) for a, s in zip(links, sure, strict=True))


def dice_matching(x: Any, threshold: float) -> Any:
    score = np.maximum(x[:, :, 0] - threshold, 0)
    rows, columns = linear_sum_assignment(score, maximize=True)
    kept = score[rows, columns] > 0
    return np.column_stack([rows[kept], columns[kept]])


def first_matching(links: Any) -> Any:
    """Keep the first link of each row and column: the extragradient method needs matchings."""
    kept: list[Any] = []
    for a, b in links:
        if all(a != row and b != column for row, column in kept):
            kept.append((a, b))
    return np.array(kept, dtype=np.int64).reshape(-1, 2)


def fit(X: Any, Y: Any, costs: float, C: float, **parameters: Any) -> StructuredSVM:
    model = MatchingModel(false_positive_cost=1.0, false_negative_cost=costs)
    svm = StructuredSVM(model, C=C, tol=1e-4, random_state=0, **parameters)
    right = [first_matching(links) for links in Y] if svm.solver == "extragradient" else Y
    return svm.fit(X, right)


def loss(svm: StructuredSVM, data: Any) -> float:
    """Return the loss of the predictions relative to the maximum loss."""
    return 1 - svm.score(*data)


def compare(data: Any, train: Any, test: Any, max_iter: int) -> dict[str, Any]:
    """Record the results of each method, and return the training and test losses over passes."""

    def pick(chosen: Any) -> Any:
        return tuple([values[index] for index in chosen] for values in data)

    def rate(found: Any, chosen: Any) -> float:
        return error_rate(found, *pick(chosen)[2:])

    def simple(threshold: float, chosen: Any) -> float:
        return rate([dice_matching(x, threshold) for x in pick(chosen)[0]], chosen)

    def cross_validated(p: Any) -> float:
        found, chosen = [], []
        for fold in range(4):
            held = train[fold::4]
            svm = fit(*pick(np.setdiff1d(train, held))[:2], *p, max_iter=50)
            found += svm.predict(pick(held)[0])
            chosen += list(held)
        return rate(found, chosen)

    table = Table("alignment", "training", "method")
    threshold = min(np.arange(0, 0.9, 0.05), key=lambda t: simple(t, train))
    method = f"Dice above {threshold:.2f}"
    table.add(training=len(train), method=method, error_rate=simple(threshold, test))
    best = min(itertools.product(COSTS, CS), key=cross_validated)
    seen, unseen = pick(train)[:2], pick(test)[:2]
    curves = {}
    own: dict[str, Any] = {"solver": "block-frank-wolfe"}
    for _ in range(2):
        start = time.perf_counter()
        svm = fit(*seen, *best, **own, max_iter=max_iter)
        seconds = time.perf_counter() - start
        table.add(
            training=len(train),
            method=svm.solver,
            cost=best[0],
            C=best[1],
            passes=svm.n_iter_,
            seconds=seconds,
            error_rate=rate(svm.predict(unseen[0]), test),
            test_loss=loss(svm, unseen),
            training_loss=loss(svm, seen),
            objective=svm.objective_,
            gap=svm.duality_gap_,
        )
        passes = [n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500) if n <= svm.n_iter_]
        fits = [fit(*seen, *best, **own, max_iter=n) for n in passes]
        for where, part in (("training", seen), ("test", unseen)):
            values = np.array([loss(svm, part) for svm in fits])
            curves[f"{svm.solver}, {where}"] = np.array(passes), values
        # The constrained form of the problem: minimise the loss within the ball whose radius is the
        # norm of the solution above.
        own = {"solver": "extragradient", "radius": np.linalg.norm(svm.coef_)}
    return curves


def ceiling(Y: Any, links: tuple[int, int]) -> float:
    """Return the error rate of the best alignment that respects the limits on links."""
    found = []
    for pairs in Y:
        shape = np.max(pairs, axis=0, initial=-1) + 1
        right = np.zeros((*shape, 1))
        right[pairs[:, 0], pairs[:, 1]] = 1.0
        core = MatchingModel(max_links=links).learn(pair_features([right]), [pairs])
        found += core.decode(core.stack([right]), np.ones(1), 1)
    sets = [{(int(a), int(b)) for a, b in pairs} for pairs in Y]
    return error_rate(found, sets, sets)


def compare_links(data: Any, train: Any, test: Any) -> None:
    """Record error rates for limits on links; the truth is the sure links, then all links."""
    table = Table("alignment-links", "truth", "links")
    X, _, sure, possible = data
    for truth, right, allowed in (("sure", sure, possible), ("all", possible, possible)):
        Y = [np.array(sorted(links), dtype=np.int64).reshape(-1, 2) for links in right]

        def rate(found: Any, chosen: Any, right: Any = right, allowed: Any = allowed) -> float:
            return error_rate(found, [right[i] for i in chosen], [allowed[i] for i in chosen])

        def trained(chosen: Any, parameters: Any, Y: Any = Y, **others: Any) -> StructuredSVM:
            costs, C, links = parameters
            model = MatchingModel(1.0, costs, max_links=links)
            svm = StructuredSVM(model, C=C, random_state=0, **others)
            return svm.fit([X[i] for i in chosen], [Y[i] for i in chosen])

        def validated(parameters: Any) -> float:
            found, chosen = [], []
            for fold in range(4):
                held = train[fold::4]
                svm = trained(np.setdiff1d(train, held), parameters, tol=1e-2, max_iter=30)
                found += svm.predict([X[i] for i in held])
                chosen += list(held)
            return rate(found, chosen)

        for links in LINKS:
            rates = {(costs, C): validated((costs, C, links)) for costs in COSTS for C in CS[1:4]}
            costs, C = min(rates, key=rates.__getitem__)
            start = time.perf_counter()
            svm = trained(train, (costs, C, links), tol=1e-3, max_iter=1000)
            table.add(
                truth=truth,
                links=f"{links[0]}, {links[1]}",
                cost=costs,
                C=C,
                validated=rates[costs, C],
                error_rate=rate(svm.predict([X[i] for i in test]), test),
                ceiling=ceiling([Y[i] for i in test], links),
                seconds=time.perf_counter() - start,
                relative_gap=svm.relative_gap_,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--max-iter", type=int, default=500)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--links", action="store_true")
    arguments = parser.parse_args()
    pairs, sure, possible = read(arguments.data)
    Y = [np.array(sorted(links), dtype=np.int64).reshape(-1, 2) for links in sure]
    data = features(pairs), Y, sure, possible
    order = np.random.default_rng(0).permutation(len(Y))
    test, rest = np.split(order, [min(100, len(Y) // 3)])
    print(f"{len(Y)} different pairs, {len(test)} of them for testing")
    if arguments.links:
        compare_links(data, rest, test)
        return
    panels = {
        name: compare(data, train, test, arguments.max_iter)
        for name, train in {f"{len(own)} pairs": own for own in (rest[:100], rest)}.items()
    }
    draw(panels, "loss", arguments.plot)


if __name__ == "__main__":
    main()
