"""Check the direction of imports, cycles of imports, and the sizes of files and functions.

Usage: python scripts/check_structure.py [ROOT]

Prints one line per violation and exits with status 1 if there is any:

- an import from a higher layer (see LAYERS),
- a cycle of imports between files, or between modules (folders) at any level,
- a file of more than 500 lines, or a function of more than 60,
- more than 15 files at the top level of python/dualgap,
- a folder of src or python/dualgap that the map in CONTRIBUTING.md does not list,
- a Rust file without module documentation (`//!`),
- two public types with the same name in the Rust crate.

A mod.rs declares and re-exports the modules of its folder, and may list them in a constant (a
registry). None of this counts as an import. An import through a re-export counts as an import from
the file that defines the name. Unit tests inside a Rust file (#[cfg(test)]) may use any module.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import python_imports
import rust_imports

# Lowest layer first. A module may import from its own layer and from the layers before it.
RUST_LAYERS = [
    {"error", "interrupt", "memory", "names"},
    {"run", "parallel", "data", "linalg"},
    {"dual", "penalty", "polytope"},
    {"solver"},
    {"logistic", "multiclass", "structured", "polynomial", "recommend", "sequence"},
    {"frank_wolfe", "models"},
    {"python"},
]
PYTHON_LAYERS = [
    {"_choices", "_core", "_files", "_libsvm", "_npz", "_records", "_sparse", "_validation"},
    {"_estimator", "_tuning", "losses", "chunks", "metrics"},
    {
        "logistic",
        "multiclass",
        "structured",
        "polynomial",
        "recommend",
        "distributed",
        "datasets",
        "sequence",
        "frank_wolfe",
    },
    {"_report", "plotting", "export", "cli"},
    {"__main__"},
]
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_TOP_FILES = 15
FOLDERS = ["src", "python", "tests", "benches", "examples", "scripts"]

Graph = Mapping[str, set[str]]


def upward(graph: Graph, layers: list[set[str]]) -> Iterator[str]:
    """Find modules that import from a higher layer; modules are named `root.module...`."""
    rank = {name: height for height, layer in enumerate(layers) for name in layer}
    for source, targets in sorted(graph.items()):
        if "." not in source:
            continue  # The root module only re-exports.
        if source.split(".")[1] not in rank:
            yield f"{source} is not in any layer"
            continue
        for target in sorted(targets):
            if "." not in target:
                yield f"{source} imports from the root {target}"
            elif rank.get(target.split(".")[1], -1) > rank[source.split(".")[1]]:
                yield f"{source} imports {target}, which is in a higher layer"


def cycles(graph: Graph) -> list[list[str]]:
    """Find strongly connected components of at least two nodes (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def levels(graph: Graph) -> Iterator[dict[str, set[str]]]:
    """Build the import graph of each folder's children, with each child as a single node."""
    modules = set(graph) | {target for targets in graph.values() for target in targets}
    parents = {module.rsplit(".", 1)[0] for module in modules if "." in module}
    for parent in sorted(parents):
        depth = parent.count(".") + 2
        contracted: dict[str, set[str]] = {}
        for source, targets in graph.items():
            if not source.startswith(parent + "."):
                continue
            child = ".".join(source.split(".")[:depth])
            for target in targets:
                other = ".".join(target.split(".")[:depth])
                if target.startswith(parent + ".") and other != child:
                    contracted.setdefault(child, set()).add(other)
        yield contracted


def imports(graph: Graph, layers: list[set[str]]) -> Iterator[str]:
    """Find imports from higher layers, and cycles of imports."""
    yield from upward(graph, layers)
    seen = cycles(graph)
    yield from (f"cycle of files: {', '.join(cycle)}" for cycle in seen)
    for contracted in levels(graph):
        for cycle in cycles(contracted):
            if cycle not in seen:
                yield f"cycle of modules: {', '.join(cycle)}"
                for source in cycle:
                    yield from crossings(graph, source, cycle)


def crossings(graph: Graph, module: str, cycle: Iterable[str]) -> Iterator[str]:
    """List the imports between the modules of a cycle."""
    others = tuple(other for other in cycle if other != module)
    for source, targets in sorted(graph.items()):
        if source == module or source.startswith(module + "."):
            for target in sorted(targets):
                if any(target == other or target.startswith(other + ".") for other in others):
                    yield f"    {source} imports {target}"


def sizes(root: Path) -> Iterator[str]:
    """Find files and functions that are too long."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".rs", ".py", ".pyi"):
                continue
            text, name = path.read_text("utf-8"), path.relative_to(root)
            if (length := text.count("\n")) > MAX_FILE_LINES:
                yield f"{name} has {length} lines"
            language = rust_imports if path.suffix == ".rs" else python_imports
            for function, line, length in language.functions(text):
                if length > MAX_FUNCTION_LINES:
                    yield f"{name}:{line} function {function} has {length} lines"


def top_files(package: Path) -> Iterator[str]:
    """Report a package with too many files at its top level."""
    built = (".so", ".pyd")
    files = [path.name for path in package.glob("*") if path.is_file() and path.suffix not in built]
    if len(files) > MAX_TOP_FILES:
        yield f"{package.name} has {len(files)} files at its top level: {', '.join(sorted(files))}"


def mapped(text: str) -> set[str]:
    """Read the paths in the first column of the map.

    A name without a folder is in the folder of the last name before it that has one.
    """
    paths = set()
    for row in re.findall(r"^\|([^|]*)\|", text, re.M):
        parent = ""
        for name in re.findall(r"`([^`]+)`", row):
            path = name.rstrip("/")
            if "/" in path:
                parent = path.rpartition("/")[0]
            else:
                path = f"{parent}/{path}"
            paths.add(path)
    return paths


def unmapped(root: Path) -> Iterator[str]:
    """Find folders that the map in CONTRIBUTING.md does not list."""
    contributing = root / "CONTRIBUTING.md"
    known = mapped(contributing.read_text("utf-8")) if contributing.exists() else set()
    for parent in ("src", "python/dualgap"):
        sources = (path for end in ("rs", "py") for path in (root / parent).glob(f"*/**/*.{end}"))
        for name in sorted({path.relative_to(root / parent).parts[0] for path in sources}):
            if f"{parent}/{name}" not in known:
                yield f"the map in CONTRIBUTING.md does not list {parent}/{name}"


def rust_modules(root: Path) -> Iterator[str]:
    """Find modules without documentation, and names shared by two public types."""
    homes: dict[str, list[str]] = {}
    for path in sorted((root / "src").rglob("*.rs")):
        text, name = path.read_text("utf-8"), str(path.relative_to(root))
        if not rust_imports.has_module_doc(text):
            yield f"{name} has no module documentation (//!)"
        for public in rust_imports.public_types(text):
            homes.setdefault(public, []).append(name)
    for public, files in sorted(homes.items()):
        if len(files) > 1:
            yield f"public type {public} is defined in {', '.join(files)}"


def violations(root: Path) -> list[str]:
    """Find all violations in the tree at `root`."""
    package = root / "python/dualgap"
    return [
        *imports(rust_imports.graph(root / "src"), RUST_LAYERS),
        *imports(python_imports.graph(package), PYTHON_LAYERS),
        *sizes(root),
        *top_files(package),
        *unmapped(root),
        *rust_modules(root),
    ]


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    found = violations(root)
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
