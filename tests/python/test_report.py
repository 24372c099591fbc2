"""The report of a fitted model: complete, self-contained, escaped and deterministic."""

from __future__ import annotations

import hashlib
import re
from fractions import Fraction
from html import escape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from fitted import CLASSES, FITS, SENTENCES, TAGS
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dualgap
from dualgap._report.digest import digest
from dualgap._report.facts import certificate_sentence

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.fixture(autouse=True)
def _date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")


def fitted(name: str) -> tuple[Any, Any, Any]:
    estimator, X, y = FITS[name]
    return clone(estimator).fit(*(X,) if y is None else (X, y)), X, y


def parse_page(page: str) -> ElementTree.Element:
    """Return the root of a page; fails unless every element is closed and every text escaped."""
    head, body = page.split("\n", 1)
    assert head == "<!DOCTYPE html>"
    return ElementTree.fromstring(body)


def text(root: ElementTree.Element) -> str:
    return " ".join(root.itertext())


@pytest.mark.parametrize("name", FITS)
def test_every_estimator_has_a_report(name: str) -> None:
    estimator, X, y = fitted(name)
    page = dualgap.report(estimator, X, y)
    root = parse_page(page)
    shown = text(root)
    for parameter in estimator.get_params(deep=False):
        assert parameter in shown
    assert repr(estimator.objective_) in shown
    assert estimator.certificate_ in shown
    assert digest("X", X).sha256 in shown
    assert "1970-01-02" in shown
    assert dualgap.__version__ in shown
    assert len(root.findall(".//svg")) == (1 if estimator.duality_gap_ is None else 2)
    assert all(curve.get("points") for curve in root.iter("polyline"))
    # The page loads no other files and runs no scripts.
    assert {node.tag for node in root.iter()}.isdisjoint({"script", "link", "img", "iframe"})
    assert "//" not in page
    assert " at 0x" not in page
    # The page does not depend on the run: a second fit gives the same page.
    assert dualgap.report(fitted(name)[0], X, y) == page


def test_a_report_of_an_unfitted_estimator_is_an_error() -> None:
    for estimator, *_ in FITS.values():
        with pytest.raises(NotFittedError):
            dualgap.report(clone(estimator))


def test_the_report_of_a_structured_search_has_search_and_model() -> None:
    search = dualgap.StructuredCV(dualgap.SequenceTagger(random_state=0), [0.1, 1.0], cv=2)
    search.fit(SENTENCES, TAGS)
    shown = text(parse_page(dualgap.report(search)))
    assert f"{search.C_:g} (chosen)" in shown
    assert repr(search.best_estimator_.objective_) in shown
    assert "Parameters of the SequenceTagger" in shown
    alone = search.set_params(refit=False).fit(SENTENCES, TAGS)
    assert "Certificate" not in text(parse_page(dualgap.report(alone)))


def test_names_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert('&\"')</script>\x00"
    X = pd.DataFrame(CLASSES[0], columns=[evil, "a&b", "<b>", '"'])
    evil += "\ud800"
    y = np.array(["<i>0", "]]>", evil], dtype=object)[CLASSES[1]]
    svm = dualgap.MulticlassSVC(class_weight={evil: 2.0}).fit(X, y)
    path = tmp_path / "report.html"
    assert dualgap.report(svm, X, y, path) is None
    page = path.read_text("utf-8")
    assert "<script" not in page
    assert "\x00" not in page
    assert escape("<script>alert('&\"')</script>\\x00\\xd800") in page
    assert "<script>alert" in text(parse_page(page))


def test_bounds_are_rounded_up() -> None:
    svm = dualgap.MulticlassSVC(random_state=0).fit(*CLASSES)
    for gap in (1.0001e-4, 0.1, 7.0, 9.9999e-3, 0.0):
        svm.objective_, svm.dual_objective_ = 8.0, 8.0 - gap
        found = re.search(r"at most (\S+) \((\S+) %", certificate_sentence(svm))
        assert found is not None
        exact = 8 - Fraction(svm.dual_objective_)
        assert exact <= Fraction(found[1]) <= exact * Fraction(101, 100)
        assert exact / 8 <= Fraction(found[2]) / 100 <= exact / 8 * Fraction(101, 100)


def test_a_report_states_that_there_is_no_certificate() -> None:
    svm = dualgap.MulticlassSVC(random_state=0).fit(*CLASSES)
    svm.certificate_ = "none: the vertex of row 3 is wrong"
    svm.dual_objective_ = svm.duality_gap_ = svm.relative_gap_ = None  # type: ignore[assignment]
    shown = text(parse_page(dualgap.report(svm)))
    assert "no certificate" in shown
    assert "row 3" in shown


def test_parameters_that_differ_from_defaults_are_marked() -> None:
    svm = dualgap.MulticlassSVC(C=3.5, callback=print, random_state=0).fit(*CLASSES)
    marked = [node.findtext("code") for node in parse_page(dualgap.report(svm)).iter("mark")]
    assert marked == ["3.5", "0", "builtins.print"]


DENSE = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("data", "equal", "other"),
    [
        (DENSE, np.asfortranarray(DENSE).astype(">f8"), DENSE[::-1]),
        (
            sp.csr_array(DENSE),
            sp.csc_matrix(DENSE),
            sp.csr_array(DENSE.reshape(3, 2)),
        ),
        (
            pd.DataFrame({"a": [1.5, 2.0], "b": ["x", None]}),
            pd.DataFrame({"a": [1.5, 2.0], "b": ["x", None]}, index=[7, 8]),
            pd.DataFrame({"a": [1.5, 2.0], "c": ["x", None]}),
        ),
        (["a", "b"], ("a", "b"), ["ab"]),
        ([DENSE, DENSE[:1]], [DENSE.copy(), DENSE[:1]], [DENSE[:1], DENSE]),
        ([{"b", "a"}, {"c"}], [{"a", "b"}, {"c"}], [{"a"}, {"b", "c"}]),
        (dualgap.Chunks([DENSE[:1], DENSE[1:]]), DENSE, dualgap.Chunks([DENSE[1:], DENSE[:1]])),
        (np.array(["x", "yz"]), np.array(["x", "yz"], dtype=object), np.array(["xy", "z"])),
    ],
    ids=["dense", "sparse", "table", "strings", "arrays", "sets", "chunks", "array-of-strings"],
)
def test_digests_depend_only_on_values(data: Any, equal: Any, other: Any) -> None:
    assert digest("X", data).sha256 == digest("X", equal).sha256
    assert digest("X", data).sha256 != digest("X", other).sha256


def test_the_digest_of_an_array_is_the_digest_of_its_bytes() -> None:
    assert digest("X", DENSE).sha256 == hashlib.sha256(DENSE.tobytes()).hexdigest()


def test_bad_arguments_of_a_report_are_errors(tmp_path: Path) -> None:
    svm = dualgap.MulticlassSVC(random_state=0)
    pipeline = make_pipeline(StandardScaler(), svm).fit(*CLASSES)
    with pytest.raises(TypeError, match=r"estimator: must be .* got Pipeline; .*pipeline\[-1\]"):
        dualgap.report(pipeline)
    with pytest.raises(TypeError, match="got MulticlassSVC"):
        dualgap.report(dualgap.MulticlassSVC)
    with pytest.raises(ValueError, match="X: has 3 columns, but the estimator was fitted with 4"):
        dualgap.report(svm, CLASSES[0][:, :3])
    with pytest.raises(ValueError, match="y: must have one entry for each of 60 rows of X, got 2"):
        dualgap.report(svm, CLASSES[0], [0, 1])
    with pytest.raises(TypeError, match=r"X: cannot compute a digest .*object"):
        dualgap.report(svm, [object()])
    with pytest.raises(TypeError, match=r"X: must be in memory .* got generator"):
        dualgap.report(svm, (row for row in CLASSES[0]))
    path = tmp_path / "missing" / "report.html"
    with pytest.raises(OSError, match="missing"):
        dualgap.report(svm, path=path)


def test_a_long_history_gives_a_short_page() -> None:
    svm = dualgap.MulticlassSVC(random_state=0).fit(*CLASSES)
    n = 100_000
    values = 1.0 + 1.0 / np.arange(1, n + 1)
    svm.history_ = {
        "epoch": np.arange(1, n + 1),
        "objective": values,
        "dual_objective": 2.0 - values,
        "gap": 2.0 * values - 2.0,
    }
    page = dualgap.report(svm)
    assert len(page) < 100_000
    last = parse_page(page).findall(".//polyline")[0].get("points", "").split()[-1]
    assert last.startswith("628.0,")
