"""Number of random trials per test."""

import os


def trials(count: int) -> int:
    """Return all trials, or a third if `make test-simd` repeats a test."""
    return -(-count // 3) if os.environ.get("DUALGAP_REPEATED") else count
