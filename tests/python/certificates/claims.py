"""Checks of the claims of several fits of one problem, in exact arithmetic.

The objective of any model is an upper bound on the optimum. Therefore, no dual value may exceed the
exact objective of any fit, and no reported objective may be below the exact objective of its model.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

Bounds = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Claim:
    """A fit's claims about its objective and the optimum, with the exact values to compare."""

    what: str
    objective: float
    dual: float
    exact: Bounds
    """Exact objective of the model."""
    optimum_below: Fraction
    """Exact objective of a feasible model: the fitted model, or a model close to it."""
    wrong: str = ""
    """Description of another claim that is wrong, or ""."""


Claims = Iterator[Claim | None]
"""The claims of the fits of one problem; None for a fit that raised an error with a remedy."""


def try_fit(fit: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Return the result of the fit, or None if it raised an error with a remedy."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fit(*given, **options)
    except (RuntimeError, ValueError) as error:
        if any(remedy in str(error) for remedy in ("scale the", "X: ", "y: ")):
            return None
        raise


def claim(what: str, model: Any, exact: Fraction | Bounds) -> Claim:
    """Return the claims of a fitted model, with the exact objective of the model."""
    around = exact if isinstance(exact, tuple) else (exact, exact)
    duals = np.asarray(model.history_["dual_objective"])
    dual = max([model.dual_objective_, *duals[~np.isnan(duals)].tolist()])
    return Claim(what, model.objective_, dual, around, around[1])


def claim_of_piece(what: str, piece: Any, model: Fraction, other: Fraction) -> Claim:
    """Compare the gap that a piece of a path reports with an exact lower bound on the true gap."""
    gap = max(model - other, Fraction(0))
    wrong = ""
    if gap > Fraction(piece.duality_gap) or gap > Fraction(piece.relative_gap) * model:
        claimed = (piece.duality_gap, piece.relative_gap)
        wrong = f"claimed gaps {claimed}, but the gap is {float(gap):.6g} of {float(model):.6g}"
    return claim_of_comparison(what, wrong)


def claim_of_comparison(what: str, wrong: str) -> Claim:
    """Wrap the result of a finished comparison; `wrong` describes an error, or is ""."""
    return Claim(what, 0.0, 0.0, (Fraction(0), Fraction(0)), Fraction(0), wrong)


def find_wrong_claims(claims: Iterable[Claim]) -> list[str]:
    """Return a description of each wrong claim."""
    known = list(claims)
    best = min((one.optimum_below for one in known), default=Fraction(0))
    found = []
    for one in known:
        if one.wrong:
            found.append(f"{one.what}: {one.wrong}")
        elif not (np.isfinite(one.objective) and np.isfinite(one.dual)):
            found.append(f"{one.what}: objective {one.objective}, bound {one.dual}")
        elif one.exact[0] > Fraction(one.objective):
            off = float(one.exact[0] - Fraction(one.objective))
            found.append(f"{one.what}: the objective is larger than {one.objective!r} by {off:.3g}")
        elif Fraction(one.dual) > best:
            off = float(Fraction(one.dual) - best)
            found.append(f"{one.what}: the bound {one.dual!r} is above a model by {off:.3g}")
    return found


def check_claims(claims: Claims) -> tuple[Counter[str], list[str]]:
    """Run the fits of a problem; count their results and describe the wrong claims."""
    results = list(claims)
    known = [one for one in results if one is not None]
    wrong = find_wrong_claims(known)
    failed = min(len(wrong), len(known))
    counts = Counter(refused=len(results) - len(known), failed=failed, holds=len(known) - failed)
    return counts, wrong
