"""Count the public items of the Rust crate in its documentation.

Usage: python scripts/public_api.py FOLDER

FOLDER is the crate's folder in `target/doc`, written by `cargo doc` without private items. The
count includes the items that `all.html` lists, and their methods. Prints the numbers, and exits
with status 1 above the limit. Every public item is a promise to users, so raise the limit only
deliberately.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LIMIT = 250
METHOD = re.compile(r'<section id="(?:ty)?method\.[^"]+" class="method')
FOREIGN = re.compile(r'id="(?:trait|synthetic|blanket)-implementations"|id="deref-methods')


def own_methods(page: str) -> int:
    """Count the methods of a type or trait, without the methods of implemented traits."""
    end = FOREIGN.search(page)
    return len(METHOD.findall(page[: end.start()] if end else page))


def main() -> int:
    folder = Path(sys.argv[1])
    listed = re.search(r'<section id="main-content".*', (folder / "all.html").read_text("utf-8"))
    pages = sorted(set(re.findall(r'<li><a href="([^"]+)"', listed[0]))) if listed else []
    methods = sum(own_methods((folder / page).read_text("utf-8")) for page in pages)
    total = len(pages) + methods
    print(f"public items of the crate: {len(pages)}, and {methods} methods (at most {LIMIT})")
    return int(total > LIMIT or not pages)


if __name__ == "__main__":
    sys.exit(main())
