"""Install a wheel and only its dependencies into an empty environment, and test it.

Usage: python scripts/check_wheel.py PYTHON WHEEL [REQUIREMENTS [--examples]]

If REQUIREMENTS (a lock file) is given, its versions are installed. --examples also installs the
extras that the examples need, and runs every example of the README, the pages and the tutorials.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SMOKE = Path(__file__).with_name("smoke.py").resolve()
EXAMPLES = Path(__file__).parents[1].resolve() / "tests/python/stranger.py"
EXTRAS = "recommend,plot,onnx,distributed"
MAX_BYTES = 6_000_000


def check_sbom(wheel: Path) -> None:
    """Exit with an error unless the wheel lists its crates as PEP 770 specifies."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/sboms/" in name]
        found = [json.loads(archive.read(name)) for name in names]
    crates = {each["name"] for sbom in found for each in sbom.get("components", [])}
    if not {"pyo3", "rayon"} <= crates:
        sys.exit(f"error: the files {names} in dist-info/sboms do not list the wheel's crates")
    print(f"{len(crates)} components in {', '.join(names)}")


def main() -> None:
    python, wheel = sys.argv[1], Path(sys.argv[2]).resolve()
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size} bytes")
    if size > MAX_BYTES:
        sys.exit(f"error: a wheel must have at most {MAX_BYTES} bytes")
    check_sbom(wheel)
    constraint = ["--constraint", str(Path(sys.argv[3]).resolve())] if len(sys.argv) > 3 else []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", "--without-pip", f"{folder}/venv"], check=True)
        own = (
            f"{folder}/venv/Scripts/python.exe" if os.name == "nt" else f"{folder}/venv/bin/python"
        )
        # Skip the compilation of modules, most of which are never imported.
        install = [python, "-m", "pip", "--python", own, "install", "--quiet", "--no-compile"]
        install += ["--prefer-binary", *constraint]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}

        def run(script: Path) -> None:
            # Run outside the clone, so that its package cannot be imported instead.
            command = [own, "-W", "error", str(script)]
            subprocess.run(command, cwd=folder, env=environment, check=True)

        subprocess.run([*install, str(wheel)], check=True)
        run(SMOKE)
        if "--examples" in sys.argv[4:]:
            extras = [f"{wheel}[{EXTRAS}]", "skops", "onnxruntime", "mapie"]
            subprocess.run([*install, *extras], check=True)
            run(EXAMPLES)


if __name__ == "__main__":
    main()
