"""Write the project's address into pyproject.toml, Cargo.toml and the links of README.md.

Usage: python scripts/project_urls.py https://host/owner/name

Run it before a release: a package index shows README.md without the files that it links to.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def with_urls(pyproject: str, address: str) -> str:
    """Return the text of pyproject.toml with the project's addresses."""
    urls = {
        "Repository": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
    }
    table = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    before, marker, after = pyproject.partition("[project.scripts]\n")
    if not marker or "[project.urls]" in pyproject:
        msg = "pyproject.toml: [project.scripts] is missing, or [project.urls] already exists"
        raise ValueError(msg)
    return f"{before}[project.urls]\n{table}\n{marker}{after}"


def with_repository(cargo: str, address: str) -> str:
    """Return the text of Cargo.toml with the crate's repository."""
    return re.sub(
        r"^license = ", f'repository = "{address}"\nlicense = ', cargo, count=1, flags=re.M
    )


def with_absolute_links(readme: str, address: str) -> str:
    """Return the text of README.md with addresses instead of paths."""

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match[2].endswith((".svg", ".png")) else "blob"
        return f"{match[1]}({address}/{kind}/main/{match[2]})"

    return re.sub(r"(\])\((?!https?://|#)([^()\s]+)\)", absolute, readme)


def main() -> None:
    address = sys.argv[1].rstrip("/")
    if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", address):
        sys.exit(f"not an https address: {address}")
    changes = {
        "pyproject.toml": with_urls,
        "Cargo.toml": with_repository,
        "README.md": with_absolute_links,
    }
    for name, change in changes.items():
        path = ROOT / name
        path.write_text(change(path.read_text("utf-8"), address), "utf-8")


if __name__ == "__main__":
    main()
