"""Install a wheel, with its dependencies and nothing else, into an empty environment and try it.

Usage: python scripts/check_wheel.py PYTHON WHEEL [REQUIREMENTS]

The versions of REQUIREMENTS (a lock file) are taken, where there is one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SMOKE = Path(__file__).with_name("smoke.py").resolve()
MAX_BYTES = 6_000_000


def main() -> None:
    python, wheel = sys.argv[1], Path(sys.argv[2]).resolve()
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size} bytes")
    if size > MAX_BYTES:
        sys.exit(f"error: a wheel is to have at most {MAX_BYTES} bytes")
    constraint = ["--constraint", str(Path(sys.argv[3]).resolve())] if len(sys.argv) > 3 else []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", f"{folder}/venv"], check=True)
        own = (
            f"{folder}/venv/Scripts/python.exe" if os.name == "nt" else f"{folder}/venv/bin/python"
        )
        install = [own, "-m", "pip", "install", "--quiet", "--prefer-binary", *constraint]
        subprocess.run([*install, str(wheel)], check=True)
        # Away from the clone, so that its own package cannot be imported instead.
        subprocess.run([own, "-W", "error", str(SMOKE)], cwd=folder, check=True)


if __name__ == "__main__":
    main()
