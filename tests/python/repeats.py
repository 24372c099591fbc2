"""Fewer trials and cases for tests that `make test-simd` repeats."""

import os
from zlib import crc32

REPEATED = bool(os.environ.get("DUALGAP_REPEATED"))


def trials(count: int) -> int:
    """Return all trials, or a third if `make test-simd` repeats a test."""
    return -(-count // 3) if REPEATED else count


def sample(names: list[str], simd: str) -> set[str]:
    """Choose about a third of the cases of each test, at least one; it depends on `simd`."""
    third = {"scalar": 0, "avx2": 1}.get(simd, 2)
    tests: dict[str, list[str]] = {}
    for name in names:
        tests.setdefault(name.partition("[")[0], []).append(name)
    chosen: set[str] = set()
    for cases in tests.values():
        chosen.update([case for case in cases if crc32(case.encode()) % 3 == third] or cases[:1])
    return chosen
