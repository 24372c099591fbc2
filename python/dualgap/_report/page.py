"""The report of a fitted model: one HTML page without scripts or other files."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, overload

from sklearn.utils.validation import check_is_fitted

from dualgap import _core
from dualgap._estimator import Estimator
from dualgap._files import replacing
from dualgap._report.curves import charts
from dualgap._report.digest import digest
from dualgap._report.facts import certificate_sentence, classes, parameters, record, search
from dualgap._report.markup import Markup, element, table

__all__ = ["report"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "dask")

_STYLE = """
:root { color-scheme: light dark; --text: #1c1c1c; --page: #fff; --faint: #ccc; --mark: #fff2c4;
  --first: #0b62a8; --second: #b8500b; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e6e6; --page: #161616; --faint: #444;
  --mark: #4a3d0c; --first: #6db6f2; --second: #f0a060; } }
body { background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif;
  margin: 2rem auto; max-width: 50rem; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid var(--faint); padding: .25rem 1rem .25rem 0; text-align: left;
  vertical-align: top; } td { overflow-wrap: anywhere; }
td { font-variant-numeric: tabular-nums; } mark { background: var(--mark); color: inherit; }
code { font-size: .85em; overflow-wrap: anywhere; } figure { margin: 1rem 0; }
svg { height: auto; max-width: 100%; } svg text { fill: var(--text); font-size: 12px; }
.grid { stroke: var(--faint); } .axis { stroke: var(--text); }
.curve0, .curve1 { fill: none; stroke: var(--first); stroke-width: 2; }
.curve1 { stroke: var(--second); stroke-dasharray: 6 3; }
circle.curve0 { fill: var(--first); } circle.curve1 { fill: var(--second); }
"""


@overload
def report(estimator: Any, X: Any = None, y: Any = None, path: None = None) -> str: ...
@overload
def report(
    estimator: Any, X: Any = None, y: Any = None, *, path: str | os.PathLike[str]
) -> None: ...
@overload
def report(estimator: Any, X: Any, y: Any, path: str | os.PathLike[str]) -> None: ...


def report(
    estimator: Any, X: Any = None, y: Any = None, path: str | os.PathLike[str] | None = None
) -> str | None:
    """Write the record of a fitted model as one HTML page, for audits and archives.

    The page shows the objective, the duality gap and the certificate, all parameters, a digest of
    the data, the versions of the packages, the processor's instruction set, and the curves of the
    fit. It needs no other file and no script. Two equal fits give the same page, except for its
    date (UTC; the environment variable ``SOURCE_DATE_EPOCH`` sets it, in seconds since 1970).

    Parameters
    ----------
    estimator : estimator
        Any fitted estimator of dualgap.
    X, y : optional
        The training data, as passed to `fit`, for the digest. A model does not contain its data, so
        the page describes the data passed here.
    path : str or path, optional
        File to write. An existing file is replaced atomically.

    Returns
    -------
    str or None
        The page, or None if `path` is given.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        For an object of another package, or data whose digest cannot be computed.
    ValueError
        If X has a different number of columns than the training rows, or y a different length
        than X.
    OSError
        If the file cannot be written. Its previous content is then unchanged.

    Examples
    --------
    >>> import dualgap
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> svm = dualgap.MulticlassSVC(random_state=0).fit(X, y)
    >>> page = dualgap.report(svm, X, y)
    >>> page.startswith("<!DOCTYPE html>")
    True
    """
    if not isinstance(estimator, Estimator) or isinstance(estimator, type):
        name = getattr(estimator, "__name__", type(estimator).__name__)
        msg = (
            f"estimator: must be a fitted estimator of dualgap, got {name}; for a pipeline or a "
            "search of scikit-learn, pass the model itself: pipeline[-1], search.best_estimator_"
        )
        raise TypeError(msg)
    check_is_fitted(estimator)
    _check_data(estimator, X, y)
    page = _page(estimator, X, y)
    if path is None:
        return page
    with replacing(path) as file:
        file.write(page.encode("utf-8"))
    return None


def _check_data(estimator: Any, X: Any, y: Any) -> None:
    for name, data in (("X", X), ("y", y)):
        known = data is None or hasattr(data, "__len__") or hasattr(data, "shape")
        if hasattr(data, "dask") or not known:
            kind = type(data).__name__
            msg = (
                f"{name}: must be in memory to compute its digest, got {kind}; pass None or a copy"
            )
            raise TypeError(msg)
    expected = getattr(estimator, "n_features_in_", None)
    shape: Any = getattr(X, "shape", ())
    if expected is not None and len(shape) == 2 and shape[1] != expected:
        msg = f"X: has {shape[1]} columns, but the estimator was fitted with {expected}"
        raise ValueError(msg)
    if X is not None and y is not None and _length(X) != _length(y):
        msg = f"y: must have one entry for each of {_length(X)} rows of X, got {_length(y)}"
        raise ValueError(msg)


def _length(data: Any) -> int:
    return int(data.shape[0]) if hasattr(data, "shape") else len(data)


def _page(estimator: Any, X: Any, y: Any) -> str:
    title = f"Report of a fitted {type(estimator).__name__}"
    # Allow only the styles of this page.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = (
        Markup('<meta charset="utf-8"/>'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1"/>'),
        element("title", title),
        element("style", Markup(_STYLE)),
    )
    written = element("p", f"Written on {_date()} by dualgap {_core.__version__}.")
    sections = [
        element("section", element("h2", heading), *content)
        for heading, content in _sections(estimator, X, y)
        if content
    ]
    body = element("main", element("h1", title), written, *sections)
    page = element("html", element("head", *head), element("body", body), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _sections(estimator: Any, X: Any, y: Any) -> Iterator[tuple[str, list[Markup]]]:
    # The search for structured models keeps the final model in an attribute.
    model = getattr(estimator, "best_estimator_", estimator)
    if hasattr(model, "objective_"):
        sentence = element("p", element("strong", certificate_sentence(model)))
        yield "Certificate", [sentence, table(record(model))]
        yield "Progress of the fit", [_figure(*chart) for chart in charts(model.history_)]
    head, rows = search(estimator)
    yield "Search", [table(rows, head)] if rows else []
    yield "Data", _data(model, X, y)
    yield "Parameters", _parameters(estimator)
    if model is not estimator:
        yield f"Parameters of the {type(model).__name__}", _parameters(model)
    yield "Software and processor", [table(_environment())]


def _figure(caption: str, chart: Markup) -> Markup:
    return element("figure", chart, element("figcaption", caption))


def _data(model: Any, X: Any, y: Any) -> list[Markup]:
    known = classes(model)
    found = [table(known)] if known else []
    given = [(name, digest(name, data)) for name, data in (("X", X), ("y", y)) if data is not None]
    if not given:
        note = "This page has no digest of the training data: none were passed to report."
        return [*found, element("p", note)]
    note = "The data that were passed to report; a model does not contain its training data."
    found.append(element("p", note))
    for name, data in given:
        code = element("code", data.sha256)
        rows = [
            (name, data.shape),
            ("type", data.dtype),
            ("SHA-256", code),
            ("digest of", data.rule),
        ]
        found.append(table(rows))
    return found


def _parameters(estimator: Any) -> list[Markup]:
    rows = []
    changed = False
    for name, value, default in parameters(estimator):
        differs = value != default
        changed |= differs
        shown = element("code", value)
        rows.append((name, element("mark", shown) if differs else shown, element("code", default)))
    note = "Highlighted values differ from the default." if changed else "All values are defaults."
    return [element("p", note), table(rows, ("parameter", "value", "default"))]


def _environment() -> Iterator[tuple[str, str]]:
    yield "dualgap", _core.__version__
    yield "Python", f"{platform.python_implementation()} {platform.python_version()}"
    for name in _PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
    yield "system", f"{platform.system()} {platform.machine()}"
    yield "vector instructions", _core.SIMD


def _date() -> str:
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
