"""Run code on a small disk that fills up, in a separate process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest


@cache
def _can_mount() -> bool:
    """Whether a process can mount a private disk, which requires Linux with user namespaces."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run_on_small_disk(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code in `folder` on a mounted disk of 1 MB; skip the test if impossible."""
    if not _can_mount():
        pytest.skip("needs user namespaces to mount a small disk")
    mount = 'mount -t tmpfs -o size=1m none "$1" && cd "$1" && exec "$2" -c "$3"'
    private = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    return subprocess.run(
        [*private, str(folder), sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
