"""Write licences/THIRD_PARTY.md: the licences of all crates that are linked into the extension.

Usage: python scripts/third_party.py [--check]

The wheels contain that file. With --check, nothing is written, and the exit status is 1 if the
file does not match Cargo.lock. Reads `cargo metadata` and the sources of the crates, offline.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = ROOT / "licences" / "THIRD_PARTY.md"
PLATFORMS = [
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-musl",
    "aarch64-apple-darwin",
    "x86_64-pc-windows-msvc",
]
HEAD = """# Licences of third-party code

The compiled extension contains these Rust crates. `scripts/third_party.py` writes this file.
"""
TEXTS = ("licen", "copying", "unlicense", "notice")


def linked(platform: str) -> dict[str, dict[str, Any]]:
    """Return the crates that are linked into the extension, by id; macros are left out."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--offline"]
    command += ["--features=python", f"--filter-platform={platform}"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    metadata = json.loads(done.stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found: dict[str, dict[str, Any]] = {}
    pending = [metadata["resolve"]["root"]]
    while pending:
        name = pending.pop()
        kinds = {kind for target in packages[name]["targets"] for kind in target["kind"]}
        if name in found or "proc-macro" in kinds:
            continue
        found[name] = packages[name]
        for dependency in nodes[name]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                pending.append(dependency["pkg"])
    del found[metadata["resolve"]["root"]]
    return found


def texts(crate: dict[str, Any]) -> list[str]:
    """Read the licences of a crate; if it may be used under MIT, leave out Apache's licence."""
    folder = Path(crate["manifest_path"]).parent
    files = sorted(file for file in folder.iterdir() if file.name.lower().startswith(TEXTS))
    files = [file for file in files if file.is_file()]
    if any("MIT" in file.name.upper() for file in files):
        files = [file for file in files if "APACHE" not in file.name.upper()]
    lines = (file.read_text("utf-8").splitlines() for file in files)
    return ["\n".join(line.rstrip() for line in text).strip("\n") for text in lines]


def document() -> str:
    """Return the text of the file: each licence once, below the names of the crates that use it."""
    crates = {key: crate for platform in PLATFORMS for key, crate in linked(platform).items()}
    users: defaultdict[str, list[str]] = defaultdict(list)
    for crate in sorted(crates.values(), key=lambda crate: (crate["name"], crate["version"])):
        title = f"{crate['name']} {crate['version']} ({crate['license']})"
        for text in texts(crate) or ["The package contains no text of its licence."]:
            users[text].append(title)
    parts = [HEAD]
    for text, titles in users.items():
        crates_listed = "\n".join(f"- {title}" for title in titles)
        parts.append(f"{crates_listed}\n\n~~~text\n{text}\n~~~\n")
    return "\n".join(parts)


def main() -> int:
    """Write or check the file."""
    text = document()
    if "--check" not in sys.argv[1:]:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(text, "utf-8")
    elif not FILE.exists() or FILE.read_text("utf-8") != text:
        print(f"{FILE.relative_to(ROOT)} does not match Cargo.lock; run scripts/third_party.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
