"""The settings that estimators build, and the records that the core reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitted import CLASSES, FITS
from sklearn.base import clone

from dualgap import ClassFeatureLogisticRegression, ClassFeatureSVC, MulticlassSVC, _core
from dualgap.frank_wolfe import Simplex, minimize

ROOT = Path(__file__).parents[2]
STUBS = [ROOT / "python/dualgap/_records.py", ROOT / "python/dualgap/_core.pyi"]
SOURCES = ROOT / "src/python"

# Names in the stub for structs whose Rust names would be too general there.
NAMES = {
    ("structured.rs", "WarmStart"): "StructuredWarmStart",
    ("structured.rs", "Start"): "DualPointRecord",
    ("multiclass.rs", "StartRecord"): "State",
}

RECORD = re.compile(r"#\[pyo3\(from_item_all\)\]\n(?:pub\S* )?struct (\w+)[^{]*\{\n(.*?)\n\}", re.S)
FIELD = re.compile(r"((?:#\[[^\n]*\]\n\s*)*)(?:pub(?:\(\w+\))? )?(\w+): ([^\n]+),$", re.M)


@dataclass
class Record:
    """The keys of a record: all keys, optional keys, and keys whose value may be None."""

    keys: set[str] = field(default_factory=set)
    optional: set[str] = field(default_factory=set)
    nullable: set[str] = field(default_factory=set)


def rust_records() -> dict[str, Record]:
    found: dict[str, Record] = {}
    for path in sorted(SOURCES.glob("*.rs")):
        for name, body in RECORD.findall(path.read_text("utf-8")):
            name = NAMES.get((path.name, name), name)
            assert name not in found, f"two records are called {name}"
            record = found[name] = Record()
            lines = [line.strip() for line in body.splitlines()]
            text = "\n".join(line for line in lines if not line.startswith("//"))
            for attributes, key, kind in FIELD.findall(text):
                renamed = re.search(r'item\("(\w+)"\)', attributes)
                key = renamed[1] if renamed else key
                record.keys.add(key)
                if "default" in attributes:
                    record.optional.add(key)
                if kind.startswith("Option<"):
                    record.nullable.add(key)
    return found


def stub_records() -> dict[str, Record]:
    """The typed dictionaries of the stub, with the keys that they inherit."""
    found: dict[str, Record] = {}
    aliases: dict[str, str] = {}
    for node in [node for stub in STUBS for node in ast.parse(stub.read_text("utf-8")).body]:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            aliases[ast.unparse(node.target)] = ast.unparse(node.value)
        if not isinstance(node, ast.ClassDef):
            continue
        record = found[node.name.removeprefix("_")] = Record()
        for base in node.bases:
            name = ast.unparse(base).removeprefix("_records.").removeprefix("_")
            inherited = found.get(name, Record())
            record.keys |= inherited.keys
            record.optional |= inherited.optional
            record.nullable |= inherited.nullable
        for item in node.body:
            if isinstance(item, ast.AnnAssign):
                key, kind = ast.unparse(item.target), ast.unparse(item.annotation)
                record.keys.add(key)
                if kind.startswith("NotRequired["):
                    record.optional.add(key)
                if aliases.get(kind, kind).endswith("| None"):
                    record.nullable.add(key)
    return found


RUST = rust_records()


def test_all_records_are_found() -> None:
    text = "".join(path.read_text("utf-8") for path in SOURCES.glob("*.rs"))
    assert len(RUST) == text.count("from_item_all") > 10


@pytest.mark.parametrize("name", RUST)
def test_the_stub_has_the_keys_of_the_rust_record(name: str) -> None:
    assert stub_records()[name] == RUST[name]


class ReadRecorder(dict[str, Any]):
    """Dictionary that records which items are read."""

    def __init__(self, items: dict[str, Any]) -> None:
        super().__init__(items)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)


# Functions of the core, each with the dictionary of the stub that describes its settings.
SETTINGS = {
    "fit_multiclass": "MulticlassSettings",
    "plan_multiclass": "MulticlassSettings",
    "multiclass_path": "LinearSettings",
    "fit_class_features": "ClassFeatureSettings",
    "cross_validate": "SearchSettings",
    "consensus_round": "RoundSettings",
    "fit_polynomial": "PolynomialRecord",
    "fit_structured": "StructuredSettings",
    "structured_path": "StructuredSettings",
    "fit_logistic_regression": "LogisticSettings",
    "fit_logistic_regressions": "LogisticPathSettings",
    "logistic_sums": "PartitionRecord",
    "logistic_certificate": "SumsRecord",
    "fit_variational": "VariationalRecord",
    "fit_interactions": "InteractionRecord",
    "item_graph": "ClicksRecord",
    "minimize_frank_wolfe": "FrankWolfeRecord",
    "fit_sequences": "SequenceSettings",
    "sequence_path": "SequenceSettings",
}


@pytest.fixture
def recorded_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ReadRecorder]]:
    """The settings of the last call of each function of the core."""
    found: dict[str, ReadRecorder] = {}

    def note(name: str, function: Any) -> Any:
        def call(*given: Any) -> Any:
            at = next(n for n, value in enumerate(given) if isinstance(value, dict))
            found[name] = ReadRecorder(given[at])
            return function(*given[:at], found[name], *given[at + 1 :])

        return call

    for name in SETTINGS:
        monkeypatch.setattr(_core, name, note(name, getattr(_core, name)))
    return found


CALLS = [
    *(FITS[name] for name in ("svc", "svc-cv", "pn", "chain", "tagger", "consensus")),
    *(FITS[name] for name in ("logistic", "logistic-cv", "recommender", "recommender-likes")),
    (MulticlassSVC(warm_start=True, random_state=0), *CLASSES),
    (ClassFeatureLogisticRegression(np.eye(3)[:, :2]), *CLASSES),
    (ClassFeatureSVC(lambda X, _: np.repeat(X, 3, axis=0), random_state=0), *CLASSES),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_core_reads_every_setting(recorded_settings: dict[str, ReadRecorder]) -> None:
    for estimator, X, y in CALLS:
        model = clone(estimator)
        if hasattr(model, "max_iter"):
            model.set_params(max_iter=2)
        model.fit(X, y)
        if hasattr(model, "path"):
            model.set_params(tol=0.5).path(X, y, 0.1, 0.2)
    minimize(lambda x: (x @ x, 2.0 * x), Simplex(3), max_iter=2)
    records = stub_records()
    assert recorded_settings.keys() == SETTINGS.keys()
    for name, settings in recorded_settings.items():
        record = records[SETTINGS[name]]
        assert record.keys - record.optional <= settings.keys() <= record.keys, name
        # A plan does not use the settings for data and stopping. The features of classes are not
        # read through a record.
        if name != "plan_multiclass":
            assert settings.read == record.keys - {"class_features"}, name
