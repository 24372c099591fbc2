"""Random fits of linear models: consensus, class features, Python losses, searches and paths."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from claims import Claim, Claims, claim, claim_of_comparison, claim_of_piece, try_fit
from drawing import SCALES, STRENGTHS, Random, draw_distinct, draw_one, draw_rows
from exact import box_of, dot, fractions, objective_of_scores
from projection import project
from sklearn.model_selection import KFold
from trials import LOSSES, SMOOTHINGS, SOLVERS

from dualgap import ClassFeatureSVC, MulticlassSVC, MulticlassSVCCV
from dualgap.distributed import ConsensusSVC
from dualgap.losses import Loss

ACCURATE: dict[str, Any] = {"tol": 1e-12, "max_iter": 300, "random_state": 0, "n_jobs": 1}
SHORT: dict[str, Any] = {"tol": 1e-6, "max_iter": 30, "random_state": 0, "n_jobs": 1}


class Problem:
    """A problem: rows, labels, a loss with an exact objective, and other arguments of the fit."""

    def __init__(self, random: Random, *, smoothed: bool = True) -> None:
        self.scale, self.C = draw_one(random, SCALES), draw_one(random, STRENGTHS)
        self.loss = draw_one(random, LOSSES)
        self.smoothing = draw_one(random, SMOOTHINGS) if smoothed and box_of(self.loss) else 0.0
        self.X = draw_rows(random, self.scale, 12, 3)
        self.y = np.arange(12) % 4
        self.weights = random.uniform(0.1, 3.0, 12) if random.random() < 0.5 else None
        self.intercept = bool(random.random() < 0.5)
        self.data = sp.csr_matrix(self.X) if random.random() < 0.3 else self.X

    def options(self) -> dict[str, Any]:
        """Return the arguments of the estimator."""
        return {
            "loss": self.loss,
            "C": self.C,
            "smoothing": self.smoothing,
            "fit_intercept": self.intercept,
        }

    def exact_objective(
        self, coef: Any, intercept: Any, C: float | None = None, rows: Any = None
    ) -> Fraction:
        """Return the exact objective of a model with these weights."""
        W = [[*w, b] for w, (b,) in zip(fractions(coef), fractions(np.c_[intercept]), strict=True)]
        given = slice(None) if rows is None else rows
        X = [[*x, Fraction(1)] for x in fractions(self.X[given])]
        scores = [[dot(w, x) for w in W] for x in X]
        square = sum((dot(w, w) for w in W), Fraction(0))
        weights = None if self.weights is None else self.weights[given]
        labels = self.y[given].tolist()
        return objective_of_scores(
            self.loss, scores, labels, square, C or self.C, self.smoothing, weights
        )

    def __str__(self) -> str:
        return (
            f"{self.loss.name}, rows {self.scale:g}, C {self.C:g}, "
            f"smoothing {self.smoothing:g}, {self.intercept=}"
        )


def linear(problem: Problem, what: str, model: Any, **fit: Any) -> Claim | None:
    """Fit a model that has weights for each class, and return its claim."""
    if try_fit(model.fit, problem.data, problem.y, problem.weights, **fit) is None:
        return None
    return claim(
        f"{what}, {problem}", model, problem.exact_objective(model.coef_, model.intercept_)
    )


def consensus(random: Random) -> Claims:
    """Yield claims of consensus fits to rows in partitions, by both solvers."""
    problem = Problem(random)
    yield linear(problem, "all rows", MulticlassSVC(**problem.options(), **ACCURATE))
    for solver in ("block-descent", "sequential-dual"):
        parts = int(random.integers(1, 5))
        model = ConsensusSVC(**problem.options(), n_partitions=parts, solver=solver, **SHORT)
        yield linear(problem, f"consensus, {solver}, {parts} partitions", model)
    long = ConsensusSVC(**problem.options(), n_partitions=3, **{**ACCURATE, "max_iter": 200})
    yield linear(problem, "consensus, long", long)


def weighted_classes(random: Random) -> Claims:
    """Yield claims of `MulticlassSVC` with sample weights and intercepts."""
    problem = Problem(random)
    yield linear(problem, "far", MulticlassSVC(**problem.options(), **ACCURATE))
    for solver, step in draw_distinct(random, SOLVERS, 3):
        if solver == "away-frank-wolfe" and problem.smoothing:
            continue
        model = MulticlassSVC(**problem.options(), solver=solver, step=step, **SHORT)
        yield linear(problem, f"{solver} {step}", model)


def class_features(random: Random) -> Claims:
    """Yield claims of models with class features or joint features."""
    problem = Problem(random)
    Z = draw_rows(random, 1.0, 4, 2)
    combine = draw_one(random, ("kronecker", "concatenate", "callable"))
    full = np.c_[np.eye(4), Z] if combine == "concatenate" else Z

    def joint(X: Any, kinds: Any) -> Any:
        X = X.toarray() if sp.issparse(X) else np.asarray(X)
        return np.einsum("nd,mp->nmpd", X, Z[kinds]).reshape(len(X) * len(kinds), -1)

    if combine == "callable":
        problem.intercept = False
    own: dict[str, Any] = (
        {"class_features": joint}
        if combine == "callable"
        else {"class_features": Z, "combine": combine}
    )
    # Newton's method supports only row features.
    solvers = [(solver, step) for solver, step in SOLVERS if solver != "newton"]
    ways = [
        ACCURATE,
        *(
            {**SHORT, "solver": solver, "step": step}
            for solver, step in draw_distinct(random, solvers, 3)
        ),
    ]
    for way in ways:
        if way.get("solver") == "away-frank-wolfe" and problem.smoothing:
            continue
        model = ClassFeatureSVC(**own, **problem.options(), **way)
        if try_fit(model.fit, problem.data, problem.y, problem.weights) is None:
            yield None
            continue
        V = fractions(np.asarray(model.coef_).reshape(full.shape[1], -1))
        bias = (
            [Fraction(0)] * len(V)
            if combine == "callable"
            else [b for (b,) in fractions(np.c_[model.intercept_])]
        )
        V = [[*v, b] for v, b in zip(V, bias, strict=True)]
        features = fractions(full)
        scores = []
        for x in fractions(problem.X):
            seen = [dot(v, [*x, Fraction(1)]) for v in V]
            scores.append([dot(z, seen) for z in features])
        square = sum((dot(v, v) for v in V), Fraction(0))
        true = objective_of_scores(
            problem.loss,
            scores,
            problem.y.tolist(),
            square,
            problem.C,
            problem.smoothing,
            problem.weights,
        )
        yield claim(
            f"class features, {combine}, {way.get('solver')} {way.get('step')}, {problem}",
            model,
            true,
        )


class Capped:
    """Usunier's loss averaged over two classes: coordinates up to 1/2 with a sum up to 1."""

    def support(self, margins: Any, label: int) -> Any:
        return np.sort(np.maximum(margins, 0.0))[-2:].sum() / 2

    def vertex(self, margins: Any, label: int) -> Any:
        point = np.zeros(len(margins))
        best = np.argsort(-margins, kind="stable")[:2]
        point[best[margins[best] > 0]] = 0.5
        return point

    def project(self, point: Any, label: int) -> Any:
        return project(point, label, 0.5)


class CappedCosts(Capped):
    """The capped hinge loss with a matrix of costs."""

    costs = np.array([[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [0.3, 2, 1, 0]])


def own_loss(random: Random) -> Claims:
    """Yield claims of fits with a loss written in Python and with its equivalent in the core."""
    problem = Problem(random)
    problem.loss = Loss("usunier", k=2)
    given = Capped()
    if random.random() < 0.4:
        given = CappedCosts()
        problem.loss = Loss("usunier", k=2, costs=CappedCosts.costs)
    problem.smoothing = draw_one(random, SMOOTHINGS)
    yield linear(problem, "the core's", MulticlassSVC(**problem.options(), **ACCURATE))
    for solver, step in (("block-descent", None), *draw_distinct(random, SOLVERS, 2)):
        if solver == "away-frank-wolfe" and problem.smoothing:
            continue
        options = {**problem.options(), "loss": given}
        model = MulticlassSVC(**options, solver=solver, step=step, **SHORT)
        yield linear(problem, f"own loss, {solver} {step}", model)


def search(random: Random) -> Claims:
    """Yield claims of the final fit of a search over C."""
    problem = Problem(random)
    Cs = sorted(random.choice(STRENGTHS, 2, replace=False) * random.uniform(0.5, 2.0, 2))
    model = MulticlassSVCCV(
        loss=problem.loss,
        smoothing=problem.smoothing,
        Cs=Cs,
        fit_intercept=problem.intercept,
        cv=KFold(2),
        cv_tol=1e-6,
        **SHORT,
    )
    if try_fit(model.fit, problem.data, problem.y, problem.weights) is None:
        yield None
        return
    problem.C = model.C_
    yield claim(f"refit, {problem}", model, problem.exact_objective(model.coef_, model.intercept_))
    yield linear(problem, "far", MulticlassSVC(**problem.options(), **ACCURATE))


def folds(random: Random) -> Claims:
    """Check a search's bounds on the optima of its folds. A search does not keep the folds'
    weights."""
    problem = Problem(random)
    fold, C = int(random.integers(2)), float(draw_one(random, STRENGTHS))
    model = MulticlassSVCCV(
        loss=problem.loss,
        smoothing=problem.smoothing,
        Cs=[C, 3.0 * C],
        fit_intercept=problem.intercept,
        cv=KFold(2),
        cv_tol=1e-6,
        refit=False,
        **SHORT,
    )
    if try_fit(model.fit, problem.data, problem.y, problem.weights) is None:
        yield None
        return
    rows = list(KFold(2).split(problem.X))[fold][0]
    for at, strength in enumerate(model.Cs_):
        problem.C = float(strength)
        far = MulticlassSVC(**problem.options(), **ACCURATE)
        weights = None if problem.weights is None else problem.weights[rows]
        if try_fit(far.fit, problem.data[rows], problem.y[rows], weights) is None:
            continue
        best = problem.exact_objective(far.coef_, far.intercept_, rows=rows)
        said = {
            name: float(model.cv_results_[name][fold, at])
            for name in ("objective", "dual_objective")
        }
        wrong = ""
        if said["dual_objective"] > best or said["objective"] < far.dual_objective_:
            wrong = f"{said} where the optimum is {far.dual_objective_!r} to {float(best)!r}"
        yield claim_of_comparison(f"fold, {problem}", wrong)


def path(random: Random) -> Claims:
    """Yield claims of the pieces of a path over C, at the ends of the pieces and between them."""
    problem = Problem(random)
    problem.smoothing = 0.0
    C = draw_one(random, (1e-6, 1e-3, 1.0, 1e3))
    options = problem.options()
    model = MulticlassSVC(**{**options, "C": 1.0}, **{**ACCURATE, "tol": 0.05})
    pieces = try_fit(model.path, problem.data, problem.y, C, 50.0 * C, problem.weights)
    if pieces is None:
        yield None
        return
    for piece in draw_distinct(random, pieces, min(len(pieces), 3)):
        for at in (piece.C_min, piece.C_max, float(random.uniform(piece.C_min, piece.C_max))):
            far = MulticlassSVC(**{**options, "C": at}, **ACCURATE)
            if try_fit(far.fit, problem.data, problem.y, problem.weights) is None:
                continue
            scaled = at / piece.C_min
            yield claim_of_piece(
                f"path, C {at:g}, {problem}",
                piece,
                problem.exact_objective(piece.coef_at(at), piece.intercept * scaled, at),
                problem.exact_objective(far.coef_, far.intercept_, at),
            )


KINDS: dict[str, Callable[[Random], Claims]] = {
    "linear: weights of rows, intercepts": weighted_classes,
    "linear: consensus": consensus,
    "linear: class features": class_features,
    "linear: own loss": own_loss,
    "linear: search, refit": search,
    "linear: search, folds": folds,
    "linear: path": path,
}
