"""Fits of structured models and taggers, by every solver, to random problems of extreme ranges.

Each kind fits one problem in several ways and yields the claims of the fits (`claims`). One of the
fits is very accurate, so comparisons with it detect even slightly wrong bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from choices import (
    Example,
    chain_examples,
    class_examples,
    exact,
    hinge,
    log_loss,
    matching_examples,
    regularizer,
    set_examples,
)
from claims import Claim, Claims, claim, claim_of_piece, try_fit
from drawing import SCALES, STRENGTHS, Random, draw_distinct, draw_one, draw_rows

from dualgap.sequence import SequenceTagger
from dualgap.structured import (
    ChainModel,
    MatchingModel,
    MulticlassModel,
    MultilabelModel,
    StructuredSVM,
)

SOLVERS: tuple[dict[str, Any], ...] = (
    {},
    {"step": "pairwise", "sampling": "gap"},
    {"step": "away", "sampling": "uniform", "cache": True},
    {"averaging": True},
    {"step": "pairwise", "cache": True},
    {"solver": "frank-wolfe"},
    {"solver": "frank-wolfe", "step": "scheduled"},
    {"solver": "away-frank-wolfe"},
    {"solver": "away-frank-wolfe", "step": "pairwise"},
    {"solver": "away-frank-wolfe", "subsample": 0.5},
    {"solver": "projected-gradient"},
    {"solver": "subgradient"},
    {"solver": "subgradient", "averaging": True},
)
ACCURATE: dict[str, Any] = {"step": "pairwise", "tol": 1e-12, "max_iter": 300}


class Classes:
    """A model written in Python that predicts one of three classes."""

    def joint_features(self, x: Any, y: int) -> Any:
        found = np.zeros((len(x), 3))
        found[:, y] = x
        return found.ravel()

    def loss(self, y_true: int, y: int) -> float:
        return float(y_true != y)

    def loss_augmented_decode(self, x: Any, y_true: int, w: Any) -> int:
        return int(np.argmax(x @ w.reshape(-1, 3) + (np.arange(3) != y_true)))

    def decode(self, x: Any, w: Any) -> int:
        return int(np.argmax(x @ w.reshape(-1, 3)))


Problem = tuple[Any, Any, Any, list[Example]]
"""A model, examples with their labels, and the list of all possible labels."""


def classes(random: Random, scale: float) -> Problem:
    X, y = draw_rows(random, scale, 8, 3), np.arange(8) % 3
    return MulticlassModel(), X, y, class_examples(X, y, 3)


def written(random: Random, scale: float) -> Problem:
    X, y = draw_rows(random, scale, 6, 2), [int(label) for label in np.arange(6) % 3]
    return Classes(), list(X), y, class_examples(X, y, 3)


def chain(random: Random, scale: float) -> Problem:
    X = [draw_rows(random, scale, length, 2) for length in (3, 1, 2, 3)]
    Y = [random.integers(0, 3, len(x)) for x in X]
    Y[0] = np.arange(3)
    boundaries, mean = random.random() < 0.5, random.random() < 0.5
    model = ChainModel(boundaries=boundaries, loss="mean-hamming" if mean else "hamming")
    return model, X, Y, chain_examples(X, Y, 3, boundaries=boundaries, mean=mean)


def label_sets(random: Random, scale: float) -> Problem:
    X, Y = draw_rows(random, scale, 6, 2), random.integers(0, 2, (6, 3))
    edges = draw_one(random, ([], [(0, 1), (1, 2)], [(0, 1), (0, 2), (1, 2)]))
    mean = random.random() < 0.5
    model = MultilabelModel(edges, loss="mean-hamming" if mean else "hamming")
    return model, X, Y, set_examples(X, Y, edges, mean=mean)


def matching(random: Random, scale: float) -> Problem:
    X = [draw_rows(random, scale, *size, 2) for size in ((2, 2), (2, 3), (1, 2), (2, 2))]
    Y = [
        np.array([[0, 0]]),
        np.array([[0, 2], [1, 0]]),
        np.zeros((0, 2), int),
        np.eye(2, dtype=int),
    ]
    if random.random() < 0.3:
        Y[0] = np.array([[0, 0], [0, 1]])  # The true label may exceed the limit on links.
    costs = draw_one(random, ((1.0, 1.0), (1.0, 3.0), (0.1, 0.7)))
    links = draw_one(random, ((1, 1), (1, 1), (2, 1)))
    return MatchingModel(*costs, links), X, Y, matching_examples(X, Y, costs, links)


def draw_weights(random: Random, examples: list[Example]) -> tuple[Any, list[Example]]:
    """Return random weights or None, and the examples with these weights."""
    if random.random() < 0.5:
        return None, examples
    weights = random.uniform(0.1, 3.0, len(examples)) * draw_one(random, (1e-9, 1.0, 1e9))
    if random.random() < 0.3:
        weights[0] = 0.0
    given = zip(examples, weights, strict=True)
    return weights, [Example(e.truth, e.labels, Fraction(float(w))) for e, w in given]


def structured(draw: Callable[[Random, float], Problem]) -> Callable[[Random], Claims]:
    """Return the entry of KINDS for a structured model."""

    def kind(random: Random) -> Claims:
        scale, C = draw_one(random, SCALES), draw_one(random, STRENGTHS)
        model, X, Y, examples = draw(random, scale)
        weights, examples = draw_weights(random, examples)
        total = sum((example.weight for example in examples), Fraction(0))

        def true(coef: Any) -> Fraction:
            known = exact(coef)
            return regularizer(known, C, total) + hinge(examples, known)

        for solver in (ACCURATE, *draw_distinct(random, SOLVERS, 4)):
            options = {"tol": 1e-6, "max_iter": 40, "n_jobs": 1, **solver}
            svm = StructuredSVM(model, C=C, random_state=0, **options)
            found = try_fit(svm.fit, X, Y, weights)
            what = f"{draw.__name__}, rows {scale:g}, C {C:g}, {solver}"
            yield None if found is None else claim(what, svm, true(svm.coef_))

    return kind


def signs(random: Random) -> Claims:
    """Yield claims of fits with constraints on signs, which minimise over weights with these
    signs."""
    scale, C = draw_one(random, SCALES), draw_one(random, STRENGTHS)
    _, X, Y, examples = classes(random, scale)
    wanted = random.integers(-1, 2, 9)
    total = Fraction(len(examples))
    for solver in (ACCURATE, {}, {"step": "away"}, {"step": "pairwise", "sampling": "gap"}):
        options = {"tol": 1e-6, "max_iter": 40, "n_jobs": 1, **solver}
        svm = StructuredSVM(MulticlassModel(), C=C, signs=wanted, random_state=0, **options)
        if try_fit(svm.fit, X, Y) is None:
            yield None
            continue
        known = exact(svm.coef_)
        told = claim(
            f"signs, rows {scale:g}, C {C:g}, {solver}",
            svm,
            regularizer(known, C, total) + hinge(examples, known),
        )
        against = any(w * sign < 0 for w, sign in zip(svm.coef_, wanted, strict=True))
        yield Claim(**{**told.__dict__, "wrong": "a weight against its sign" if against else ""})


def extragradient(random: Random) -> Claims:
    """Yield claims of fits that minimise the mean loss over a ball of weights."""
    scale = draw_one(random, SCALES)
    draw = draw_one(random, (classes, chain, label_sets, matching))
    model, X, Y, examples = draw(random, scale)
    if draw is matching:
        model, Y[0] = MatchingModel(), np.array([[0, 0]])
        examples = matching_examples(X, Y, (1.0, 1.0), (1, 1))
    weights, examples = draw_weights(random, examples)
    radius = draw_one(random, (1e-6, 1.0, 1e3)) / scale
    for projection, length in ((None, 1000), ("entropic", 30), (None, 30)):
        svm = StructuredSVM(
            model,
            solver="extragradient",
            projection=projection,
            radius=radius,
            tol=1e-6,
            max_iter=length,
            random_state=0,
            n_jobs=1,
        )
        if try_fit(svm.fit, X, Y, weights) is None:
            yield None
            continue
        known = exact(svm.coef_)
        square = sum((w * w for w in known), Fraction(0))
        outside = square > Fraction(radius) ** 2
        inside = [w * Fraction(1 - 1e-12) for w in known] if outside else known
        what = f"extragradient, {draw.__name__}, rows {scale:g}, radius {radius:g}, {projection}"
        told = claim(what, svm, hinge(examples, known))
        far = square > Fraction(radius) ** 2 * Fraction(1 + 1e-12)
        yield Claim(
            **{
                **told.__dict__,
                "optimum_below": hinge(examples, inside),
                "wrong": "weights outside the ball" if far else "",
            }
        )


def tagger(loss: str) -> Callable[[Random], Claims]:
    """Return the entry of KINDS for taggers with a given loss."""

    def kind(random: Random) -> Claims:
        scale, C = draw_one(random, SCALES), draw_one(random, STRENGTHS)
        X = [draw_rows(random, scale, length, 2) for length in (3, 1, 2, 3)]
        Y = [np.arange(3), np.array([2]), np.array([0, 1]), np.array([1, 2, 0])]
        boundaries = bool(random.random() < 0.5)
        allowed, costs = np.ones((3, 3), dtype=bool), None
        if random.random() < 0.4:
            allowed[0, 0] = allowed[2, 1] = False
        if loss == "hamming" and random.random() < 0.4:
            costs = [random.uniform(0.0, 2.0, len(x)) for x in X]
        weights = random.uniform(0.1, 3.0, 4) if random.random() < 0.5 else None
        examples = chain_examples(
            X, Y, 3, boundaries=boundaries, costs=costs, allowed=allowed, weights=weights
        )
        total = sum((example.weight for example in examples), Fraction(0))
        ways: tuple[dict[str, Any], ...] = ({"tol": 1e-12, "max_iter": 500}, {}, {"max_iter": 2})
        ways += ({"sampling": "gap"}, {"sampling": "uniform"}) if loss == "hamming" else ()
        for way in ways:
            options = {"tol": 1e-6, "max_iter": 30, "n_jobs": 1, **way}
            model = SequenceTagger(
                loss, C=C, boundaries=boundaries, transitions=allowed, random_state=0, **options
            )
            if try_fit(model.fit, X, Y, weights, token_weight=costs) is None:
                yield None
                continue
            known = tagger_weights(model, boundaries)
            mean: Any = hinge(examples, known) if loss == "hamming" else log_loss(examples, known)
            half = regularizer(known, C, total)
            true = half + mean if loss == "hamming" else (half + mean[0], half + mean[1])
            yield claim(f"tagger {loss}, rows {scale:g}, C {C:g}, {way}", model, true)

    return kind


def tagger_weights(model: Any, boundaries: bool) -> list[Fraction]:
    """Return a tagger's weights in the order of `chain_examples`."""
    own = model._weights
    links = own.link_weights if boundaries else own.link_weights[:9]
    return exact(own.emission.toarray()) + exact(links)


def path(random: Random) -> Claims:
    """Yield claims of the pieces of a path over C, at the ends of the pieces and between them."""
    scale, C = draw_one(random, SCALES), draw_one(random, (1e-6, 1e-3, 1.0, 1e3))
    draw = draw_one(random, (classes, chain, label_sets))
    model, X, Y, examples = draw(random, scale)
    total = Fraction(len(examples))
    svm = StructuredSVM(model, tol=0.05, max_iter=200, random_state=0, n_jobs=1)
    pieces = try_fit(svm.path, X, Y, C, 50.0 * C)
    if pieces is None:
        yield None
        return

    def true(coef: Any, C: float) -> Fraction:
        known = exact(coef)
        return regularizer(known, C, total) + hinge(examples, known)

    for piece in draw_distinct(random, pieces, min(len(pieces), 3)):
        for at in (piece.C_min, piece.C_max, float(random.uniform(piece.C_min, piece.C_max))):
            far = StructuredSVM(model, C=at, random_state=0, n_jobs=1, **ACCURATE)
            if try_fit(far.fit, X, Y) is None:
                continue
            what = f"path, {draw.__name__}, rows {scale:g}, C {at:g}"
            yield claim_of_piece(what, piece, true(piece.coef_at(at), at), true(far.coef_, at))


def tagger_path(random: Random) -> Claims:
    """Yield claims of the pieces of a path of taggers."""
    scale, C = draw_one(random, SCALES), draw_one(random, (1e-6, 1e-3, 1.0, 1e3))
    loss = draw_one(random, ("hamming", "logistic"))
    X = [draw_rows(random, scale, length, 2) for length in (3, 1, 2, 3)]
    Y = [np.arange(3), np.array([2]), np.array([0, 1]), np.array([1, 2, 0])]
    examples, total = chain_examples(X, Y, 3, boundaries=True), Fraction(4)
    model = SequenceTagger(loss, tol=0.05, max_iter=200, random_state=0, n_jobs=1)
    pieces = try_fit(model.path, X, Y, C, 50.0 * C)
    if pieces is None:
        yield None
        return

    def true(tagger: Any, at: float, end: int) -> Fraction:
        known = tagger_weights(tagger, True)
        half = regularizer(known, at, total)
        return half + (
            hinge(examples, known) if loss == "hamming" else log_loss(examples, known)[end]
        )

    for piece in draw_distinct(random, pieces, min(len(pieces), 3)):
        for at in (piece.C_min, piece.C_max, float(random.uniform(piece.C_min, piece.C_max))):
            far = SequenceTagger(loss, C=at, tol=1e-12, max_iter=500, random_state=0, n_jobs=1)
            if try_fit(far.fit, X, Y) is None:
                continue
            what = f"path of taggers, {loss}, rows {scale:g}, C {at:g}"
            yield claim_of_piece(what, piece, true(piece.tagger(at), at, 0), true(far, at, 1))


KINDS: dict[str, Callable[[Random], Claims]] = {
    **{
        f"structured: {draw.__name__}": structured(draw)
        for draw in (classes, chain, label_sets, matching, written)
    },
    "structured: signs": signs,
    "structured: extragradient": extragradient,
    "structured: path": path,
    "tagger: hamming": tagger("hamming"),
    "tagger: log": tagger("logistic"),
    "tagger: path": tagger_path,
}
