"""Parser of imports and functions of Rust files, for scripts/check_structure.py.

Paths are found in the text, without the compiler: anything that begins with `crate`, `self`,
`super`, a child module or a name imported by `use`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = "crate"
SKIPPED = re.compile(
    r'//[^\n]*|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"' + r"|b?'(?:\\[^\n]{1,10}?|[^\\'\n])'", re.S
)
USE = re.compile(r"(?P<pub>\bpub(?:\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]+);")
PATH = re.compile(r"(?<![\w:$.])(?:\$?crate|super|self|[a-z]\w*)(?:\s*::\s*\w+)+")
ITEM = re.compile(r"\b(?:struct|enum|union|trait|type|fn|const|static|macro_rules!)\s+(\w+)")
REGISTRY = re.compile(r"\b(?:const|static)\s+[A-Z_0-9]+\s*:")
FUNCTION = re.compile(r"\bfn\s+(\w+)")
PUBLIC_TYPE = re.compile(r"\bpub(?:\([^)]*\))?\s+(?:struct|enum|union|trait|type)\s+(\w+)")
MODULE_DOC = re.compile(r"\s*(?://!|/\*!)")


@dataclass
class Module:
    """A source file: its text, with comments and strings left out, and the names in its scope."""

    text: str
    is_folder: bool
    # `names` maps local names to absolute paths; `exported` has those that `pub use` re-exports.
    names: dict[str, list[str]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    # Paths of `pub use path::*`.
    globs: list[list[str]] = field(default_factory=list)
    # `wanted` has all paths in `use` and in the code. `applied` leaves out the paths in re-exports
    # and in registries.
    wanted: list[list[str]] = field(default_factory=list)
    applied: list[list[str]] = field(default_factory=list)
    items: set[str] = field(default_factory=set)


def blank(text: str) -> str:
    """Remove comments, strings and characters, but keep line breaks."""
    text = nested_comments(text)
    return SKIPPED.sub(lambda match: "\n" * match[0].count("\n"), text)


def nested_comments(text: str) -> str:
    """Remove /* */ comments, which may be nested."""
    out, depth = [], 0
    for part in re.split(r"(/\*|\*/)", text) if "/*" in text else [text]:
        if part == "/*":
            depth += 1
        elif part == "*/" and depth:
            depth -= 1
        else:
            out.append("\n" * part.count("\n") if depth else part)
    return "".join(out)


def closing(text: str, start: int) -> int:
    """Find the first opening brace from `start` on; return the index after its closing brace."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)


def without_tests(text: str) -> str:
    """Remove items marked #[cfg(test)]."""
    while (match := re.search(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*", text)) is not None:
        semicolon, brace = text.find(";", match.end()), text.find("{", match.end())
        plain = brace < 0 or 0 <= semicolon < brace
        text = text[: match.start()] + text[semicolon + 1 if plain else closing(text, brace) :]
    return text


def without_registries(text: str) -> str:
    """Remove constants, some of which are registries that list a folder's files."""
    out, start = [], 0
    for match in REGISTRY.finditer(text):
        if match.start() >= start:
            out.append(text[start : match.start()])
            depth, start = 0, match.end()
            while start < len(text) and not (depth == 0 and text[start] == ";"):
                depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[start], 0)
                start += 1
    return "".join([*out, text[start:]])


def expand(tree: str, before: list[str]) -> Iterator[tuple[list[str], str]]:
    """Yield each path of a `use` tree, and its local name."""
    tree = tree.strip()
    opening = tree.find("{")
    if opening < 0:
        path, _, alias = tree.partition(" as ")
        parts = [*before, *(part.strip() for part in path.split("::"))]
        if parts[-1] == "self":
            parts = parts[:-1]
        yield parts, alias.strip() or parts[-1]
        return
    prefix = [part.strip() for part in tree[:opening].split("::") if part.strip()]
    inner, depth, start = tree[opening + 1 : tree.rindex("}")], 0, 0
    for at, character in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            if inner[start:at].strip():
                yield from expand(inner[start:at], [*before, *prefix])
            start = at + 1


def read(text: str, name: str, is_folder: bool, modules: set[str]) -> Module:
    """Parse the names and paths of one file."""
    module = Module(without_tests(blank(text)), is_folder)
    module.items = set(ITEM.findall(module.text))
    here = name.split(".")

    def absolute(path: list[str]) -> list[str] | None:
        first, rest = path[0].lstrip("$"), path[1:]
        if first == ROOT:
            return [ROOT, *rest]
        if first == "self":
            return [*here, *rest]
        if first == "super":
            up = here[:-1]
            while rest and rest[0] == "super":
                up, rest = up[:-1], rest[1:]
            return [*up, *rest]
        if ".".join([*here, first]) in modules:
            return [*here, *path]
        return None

    for match in USE.finditer(module.text):
        for path, alias in expand(match["tree"], []):
            found = absolute(path)
            if found is None:
                continue
            if alias == "*":
                module.globs += [found[:-1]] if match["pub"] else []
                module.wanted.append(found[:-1])
                continue
            module.names[alias] = found
            module.wanted.append(found)
            if match["pub"]:
                module.exported.add(alias)
    body = re.sub(r"\bpub\([^)]*\)", "pub", USE.sub("", module.text))
    for code, paths in ((body, module.wanted), (without_registries(body), module.applied)):
        for match in PATH.finditer(code):
            path = [part.strip() for part in match[0].split("::")]
            known = module.names.get(path[0])
            found = [*known, *path[1:]] if known else absolute(path)
            if found is not None:
                paths.append(found)
        words = set(re.findall(r"\w+", code))
        paths += [path for alias, path in module.names.items() if alias in words]
    return module


def graph(source: Path) -> dict[str, set[str]]:
    """Map each module to the modules it imports from; `crate.linalg` is src/linalg/mod.rs."""
    paths = {}
    for path in sorted(source.rglob("*.rs")):
        parts = [ROOT, *path.relative_to(source).with_suffix("").parts]
        is_folder = parts[-1] in ("mod", "lib")
        paths[".".join(parts[:-1] if is_folder else parts)] = path, is_folder
    names = set(paths)
    modules = {
        name: read(path.read_text("utf-8"), name, is_folder, names)
        for name, (path, is_folder) in paths.items()
    }
    macros = {
        macro: name
        for name, module in modules.items()
        for macro in re.findall(r"#\[macro_export\]\s*macro_rules!\s+(\w+)", module.text)
    }
    arrows: dict[str, set[str]] = {}
    for name, module in modules.items():
        targets = {resolve(modules, macros, path) for path in module.wanted}
        if module.is_folder:
            applied = {resolve(modules, macros, path) for path in module.applied}
            targets = {t for t in targets if not t.startswith(name + ".") or t in applied}
        arrows[name] = targets - {name}
    return arrows


def resolve(modules: dict[str, Module], macros: dict[str, str], path: list[str]) -> str:
    """Return the file that defines the item of a path, following re-exports."""
    for _ in range(10):
        name, rest = path[0], path[1:]
        while rest and f"{name}.{rest[0]}" in modules:
            name, rest = f"{name}.{rest[0]}", rest[1:]
        if not rest:
            return name
        module, item = modules[name], rest[0]
        if name == ROOT and item in macros:
            return macros[item]
        if item in module.exported:
            path = [*module.names[item], *rest[1:]]
            continue
        if item in module.items:
            return name
        # A child module can also import from a private `use` of its parent.
        if item in module.names:
            path = [*module.names[item], *rest[1:]]
            continue
        for glob in module.globs:
            if item in modules[resolve(modules, macros, glob)].items:
                return resolve(modules, macros, glob)
        return name
    return name


def public_types(text: str) -> set[str]:
    """Return the names of public types outside tests."""
    return set(PUBLIC_TYPE.findall(without_tests(blank(text))))


def has_module_doc(text: str) -> bool:
    """Whether the file documents its module."""
    return MODULE_DOC.match(text) is not None


def functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, line and number of lines of each function with a body."""
    text = blank(text)
    for match in FUNCTION.finditer(text):
        brace, depth = match.end(), 0
        # The body begins at the first brace outside brackets. A declaration has no body.
        while brace < len(text) and not (depth == 0 and text[brace] in "{;"):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text[brace], 0)
            brace += 1
        if brace < len(text) and text[brace] == "{":
            line = text.count("\n", 0, match.start()) + 1
            yield match[1], line, text.count("\n", match.start(), closing(text, brace)) + 1
