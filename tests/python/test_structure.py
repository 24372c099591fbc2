"""scripts/check_structure.py finds each kind of violation, and accepts allowed code."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


FOLDERS = ["src/linalg", "src/structured", "python/dualgap/cli", "python/dualgap/recommend"]
FOLDERS += ["python/dualgap/multiclass"]
MAP = "".join(f"| `{folder}/` | files |\n" for folder in FOLDERS)


def check(root: Path, files: dict[str, str]) -> list[str]:
    """Return the violations in a tree of these files, with a map and documented modules."""
    for name, text in {"CONTRIBUTING.md": MAP, **files}.items():
        if name.startswith("src/") and "//" not in text:
            text = "/*! Documented. */ " + text.lstrip("\n")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
    script = ROOT / "scripts/check_structure.py"
    done = subprocess.run([sys.executable, script, root], capture_output=True, text=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert done.returncode == (1 if lines else 0)
    return lines


def test_a_valid_tree_has_no_violations(tmp_path: Path) -> None:
    lines = check(
        tmp_path,
        {
            "src/lib.rs": "pub mod error; pub mod linalg; pub mod solver; pub use error::Error;",
            "src/error.rs": "pub struct Error;",
            "src/linalg/mod.rs": """
            //! Not an import: [`crate::solver::run`].
            mod dot;
            mod norm;
            pub use dot::dot;
            pub const KERNELS: &[(&str, fn())] = &[("norm", || { norm::norm() })];
            pub trait Kernel { const NAME: &str = "crate::solver::run"; }
            """,
            "src/linalg/dot.rs": "pub fn dot() {}",
            "src/linalg/norm.rs": """
            use super::{dot, Kernel};
            /* crate::solver::run /* nested */ crate::solver::run */
            pub fn norm() { dot() }
            #[cfg(test)]
            mod tests { use crate::solver::run; }
            """,
            "src/solver.rs": "use crate::{Error, linalg::{self, Kernel}}; pub fn run() {}",
            "python/dualgap/__init__.py": "from dualgap.losses import Loss",
            "python/dualgap/losses.py": "class Loss: ...",
            "python/dualgap/multiclass/svm.py": "from . import Loss",
        },
    )
    assert lines == []


@pytest.mark.parametrize(
    "code",
    [
        "use crate::solver::run;",
        "use crate::{error::Error, solver::{self, run as go}};",
        "pub(crate) use super::solver::run;",
        "fn f() { crate::solver::run() }",
        "use crate::solver::*;",
        "use crate::Run;",
        "macro_rules! go { () => { $crate::solver::run() } }",
    ],
)
def test_a_rust_module_that_imports_a_higher_layer_is_reported(tmp_path: Path, code: str) -> None:
    lines = check(
        tmp_path,
        {
            "src/lib.rs": "pub mod error; pub mod linalg; pub mod solver; pub use solver::Run;",
            "src/error.rs": "pub struct Error;",
            "src/solver.rs": "pub struct Run; pub fn run() {}",
            "src/linalg.rs": code,
        },
    )
    assert lines == ["crate.linalg imports crate.solver, which is in a higher layer"]


@pytest.mark.parametrize(
    "code",
    [
        "from dualgap.cli import main",
        "from .cli import main",
        "from . import cli",
        "import dualgap.cli",
        "def f():\n    from dualgap.cli import main",
        "if TYPE_CHECKING:\n    from dualgap.cli import main",
        "import_module('dualgap.cli')",
        "from dualgap import main",
    ],
)
def test_a_python_module_that_imports_a_higher_layer_is_reported(tmp_path: Path, code: str) -> None:
    lines = check(
        tmp_path,
        {
            "python/dualgap/__init__.py": "from dualgap.cli.commands import main",
            "python/dualgap/losses.py": code,
            "python/dualgap/cli/__init__.py": "from .commands import main",
            "python/dualgap/cli/commands.py": "def main(): ...",
        },
    )
    assert len(lines) == 1
    assert lines[0].startswith("dualgap.losses imports dualgap.cli")


def test_modules_without_a_layer_are_reported(tmp_path: Path) -> None:
    lines = check(tmp_path, {"src/misc.rs": "", "python/dualgap/misc.py": ""})
    assert lines == ["crate.misc is not in any layer", "dualgap.misc is not in any layer"]


def test_cycles_of_files_are_reported(tmp_path: Path) -> None:
    lines = check(
        tmp_path,
        {
            "src/linalg/mod.rs": "mod a; mod b; mod c; pub use b::B;",
            "src/linalg/a.rs": "use super::B; pub struct A;",  # B of b, re-exported above
            "src/linalg/b.rs": "use super::c::C; pub struct B;",
            "src/linalg/c.rs": "pub struct C(super::a::A);",
            "python/dualgap/recommend/__init__.py": "",
            "python/dualgap/recommend/_file.py": "",
            "python/dualgap/recommend/fit.py": "from ._file import x",
        },
    )
    assert lines == ["cycle of files: crate.linalg.a, crate.linalg.b, crate.linalg.c"]


def test_a_cycle_between_a_folder_and_its_file_is_reported(tmp_path: Path) -> None:
    lines = check(
        tmp_path,
        {
            "src/linalg/mod.rs": "mod a; pub struct Base; pub fn f() { a::g() }",
            "src/linalg/a.rs": "use super::Base; pub fn g() {}",
            "python/dualgap/recommend/__init__.py": "from .fit import g\nclass Base: ...",
            "python/dualgap/recommend/fit.py": "from . import Base\ndef g(): ...",
        },
    )
    assert lines == [
        "cycle of files: crate.linalg, crate.linalg.a",
        "cycle of files: dualgap.recommend, dualgap.recommend.fit",
    ]


def test_a_cycle_of_folders_without_a_cycle_of_files_is_reported(tmp_path: Path) -> None:
    lines = check(
        tmp_path,
        {
            "src/structured/mod.rs": "pub mod model; pub mod marginals;",
            "src/structured/model/mod.rs": "pub mod chain; pub mod scores;",
            "src/structured/model/chain.rs": "use crate::structured::marginals::sum;",
            "src/structured/model/scores.rs": "pub struct Scores;",
            "src/structured/marginals.rs": "use super::model::scores::Scores; pub fn sum() {}",
            "python/dualgap/__init__.py": "",
        },
    )
    assert lines[0] == "cycle of modules: crate.structured.marginals, crate.structured.model"
    assert [line.strip() for line in lines[1:]] == [
        "crate.structured.marginals imports crate.structured.model.scores",
        "crate.structured.model.chain imports crate.structured.marginals",
    ]


def test_too_long_files_and_functions_are_reported(tmp_path: Path) -> None:
    line = "    let brace = ('{', \"{\", r#\"{\"#, b'}');\n"
    lines = check(
        tmp_path,
        {
            "src/error.rs": "fn short<const N: usize>(_: [u8; 2]) {\n" + 58 * line + "}\n"
            "trait T { fn declared(&self); }\nfn long<'a>(x: &'a str) {\n" + 59 * line + "}\n",
            "tests/rust/main.rs": 501 * "\n",
            "benches/fits.py": 'def f():\n    """' + 70 * "\n" + '"""\n' + 59 * "    f()\n"
            "def g():\n" + 60 * "    f()\n",
        },
    )
    assert lines == [
        "src/error.rs:62 function long has 61 lines",
        "tests/rust/main.rs has 501 lines",
        "benches/fits.py:190 function g has 61 lines",
    ]


def test_too_many_files_in_the_top_folder_are_reported(tmp_path: Path) -> None:
    package = tmp_path / "python/dualgap"
    package.mkdir(parents=True)
    for number in range(15):
        (package / f"text{number}.md").touch()
    (package / "_core.abi3.so").touch()
    assert check(tmp_path, {}) == []
    (package / "py.typed").touch()
    (line,) = check(tmp_path, {})
    assert line.startswith("dualgap has 16 files at its top level: ")


def test_folders_missing_from_the_map_are_reported(tmp_path: Path) -> None:
    lines = check(
        tmp_path,
        {
            "CONTRIBUTING.md": "See `src/solver/`.\n| `src/data/`, `linalg/` | `src/dual/` |\n",
            "src/data/mod.rs": "",
            "src/linalg/mod.rs": "",
            "src/dual/mod.rs": "",
            "src/solver/deep/mod.rs": "",
            "python/dualgap/cli/main.py": "",
            "python/dualgap/recommend/README.md": "",
        },
    )
    assert lines == [
        "the map in CONTRIBUTING.md does not list src/dual",
        "the map in CONTRIBUTING.md does not list src/solver",
        "the map in CONTRIBUTING.md does not list python/dualgap/cli",
    ]


def test_the_absence_of_a_map_is_reported(tmp_path: Path) -> None:
    lines = check(tmp_path, {"CONTRIBUTING.md": "", "src/linalg/mod.rs": ""})
    assert lines == ["the map in CONTRIBUTING.md does not list src/linalg"]


def test_modules_without_documentation_are_reported(tmp_path: Path) -> None:
    lines = check(
        tmp_path,
        {
            "src/error.rs": "/// Of the item alone.\npub struct Error; // not //! one",
            "src/run.rs": "//! A module.\npub fn run() {}",
        },
    )
    assert lines == ["src/error.rs has no module documentation (//!)"]


def test_public_types_with_the_same_name_are_reported(tmp_path: Path) -> None:
    lines = check(
        tmp_path,
        {
            "src/error.rs": "pub(crate) enum Kind {} pub struct Error; struct Own; pub fn Fit() {}",
            "src/run.rs": "pub(super) trait Kind {} struct Error; pub struct Own; pub struct Fit;",
            "src/names.rs": """
            //! pub struct Own;
            pub struct Names;
            #[cfg(test)]
            mod tests { pub struct Names; pub struct Own; }
            """,
            "src/memory.rs": 'pub type Names = u8; const A: &str = "pub enum Own";',
        },
    )
    assert lines == [
        "public type Kind is defined in src/error.rs, src/run.rs",
        "public type Names is defined in src/memory.rs, src/names.rs",
    ]


def test_the_import_graphs_of_this_repository_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    rust = importlib.import_module("rust_imports").graph(ROOT / "src")
    python = importlib.import_module("python_imports").graph(ROOT / "python/dualgap")
    assert len(rust) > 50
    assert sum(map(len, rust.values())) > 100
    assert "crate.error" in rust["crate.solver.path"]
    assert len(python) > 20
    assert "dualgap._core" in python["dualgap.multiclass.svm"]


@pytest.mark.parametrize(
    ("licence", "good"),
    [
        ("MIT", True),
        ("MIT/Apache-2.0", True),
        ("Apache-2.0 WITH LLVM-exception OR MIT", True),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", True),
        ("MIT AND GPL-3.0", False),
        ("GPL-3.0-only", False),
        ("", False),
    ],
)
def test_licence_expressions_are_accepted_or_rejected(
    licence: str, good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    assert importlib.import_module("check_licences").allowed(licence) is good
