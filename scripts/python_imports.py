"""Parser of imports and functions of Python files, for scripts/check_structure.py."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# A pair (module, name), or (module, None) for the module itself.
Wanted = tuple[str, str | None]


@dataclass
class Module:
    """Imports of a module, and the origins of the names that other modules can import from it."""

    wanted: set[Wanted] = field(default_factory=set)
    names: dict[str, tuple[str, str | None]] = field(default_factory=dict)


def graph(package: Path) -> dict[str, set[str]]:
    """Map each module to the modules of the same package that it imports.

    Imports for type checking, imports inside functions and `import_module("...")` count.
    """
    modules = {}
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = read(ast.parse(path.read_text("utf-8")), name, is_package)
    return {
        name: {resolve(modules, *wanted) for wanted in module.wanted} - {name, None}
        for name, module in modules.items()
    }


def read(tree: ast.Module, name: str, is_package: bool) -> Module:
    """Parse the imports of one file."""
    module, root = Module(), name.split(".")[0]
    base = name.split(".") if is_package else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module.wanted.add((alias.name, None))
        elif isinstance(node, ast.ImportFrom):
            above = base[: len(base) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                module.wanted.add((source, alias.name))
                module.names[alias.asname or alias.name] = source, alias.name
        elif isinstance(node, ast.Call) and node.args:
            called = ast.unparse(node.func).rsplit(".", 1)[-1]
            if called == "import_module" and isinstance(node.args[0], ast.Constant):
                module.wanted.add((str(node.args[0].value), None))
    module.wanted = {wanted for wanted in module.wanted if wanted[0].split(".")[0] == root}
    return module


def resolve(modules: dict[str, Module], source: str, name: str | None) -> str | None:
    """Return the module that defines a name: a submodule, or the source of a re-export."""
    for _ in range(10):
        if source not in modules:
            return None
        if name is None:
            return source
        if f"{source}.{name}" in modules:
            return f"{source}.{name}"
        if name not in modules[source].names:
            return source
        origin = modules[source].names[name]
        if origin[0].split(".")[0] != source.split(".")[0]:
            return source
        source, name = origin
    return source


def functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, line and number of lines of each function, including nested ones.

    Docstrings do not count, for consistency with Rust, where documentation precedes a function.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = lines(node)
            if ast.get_docstring(node, clean=False) is not None:
                length -= lines(node.body[0])
            yield node.name, node.lineno, length


def lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
