"""Atomic replacement of files: kills, write errors, permissions, links."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dualgap._files import check_writable, replacing
from dualgap._npz import read_npz, write_npz

# DUALGAP_FUZZ=100 runs a hundred times the number of random trials.
TRIES = int(os.environ.get("DUALGAP_FUZZ", "1"))

_WRITER = """
import sys
import numpy as np
from dualgap._npz import write_npz
number = 0
while True:
    write_npz(sys.argv[1], {"number": number}, {"a": np.full(1_000_000, number)})
    number += 1
    print(number, flush=True)
"""


def test_a_killed_writer_leaves_the_old_or_the_new_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "model"
    generator = random.Random(0)
    write_npz(path, {}, {"a": np.full(1_000_000, -1)})
    for _ in range(3 * TRIES):
        command = [sys.executable, "-c", _WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(generator.uniform(0, 0.2))
            writer.kill()
            assert writer.wait() == -signal.SIGKILL
        content = read_npz(path)["a"]
        assert (content == content[0]).all()
        assert content[0] >= 0
        if hasattr(os, "O_TMPFILE"):
            assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("content", [np.zeros(1000), np.array([{}], dtype=object)])
def test_an_error_leaves_the_old_file_and_no_draft(tmp_path: Path, content: object) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"old")

    def write() -> None:
        with replacing(path) as file:
            np.savez(file, allow_pickle=False, a=content)
            raise RuntimeError

    with pytest.raises((RuntimeError, ValueError)):
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / "model"
    path.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit on the file size acts like a full disk, because Python ignores the signal that the
    # limit would send.
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_npz(path, {}, {"a": np.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model"]


def test_links_and_permissions_are_preserved(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    # A new file gets the permissions given by the umask.
    mask = os.umask(0o027)
    try:
        write_npz(tmp_path / "fresh", {}, {})
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o640


def test_a_device_file_is_written_in_place(tmp_path: Path) -> None:
    with replacing("/dev/null") as file:
        file.write(b"nothing")
    assert Path("/dev/null").is_char_device()
    check_writable("/dev/null")


def test_write_errors_are_reported_before_the_fit(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "folder" / "model")
    assert os.listdir(tmp_path / "new" / "folder") == []
    (tmp_path / "file").write_bytes(b"old")
    check_writable(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"old"
    with pytest.raises(IsADirectoryError):
        check_writable(tmp_path)
    with pytest.raises(OSError, match="file"):
        check_writable(tmp_path / "file" / "model")
    with pytest.raises(OSError, match="/proc/model"):
        check_writable("/proc/model")
    with pytest.raises(OSError, match="/proc/model"):
        write_npz("/proc/model", {}, {})
