"""How many random trials a test makes."""

import os


def trials(count: int) -> int:
    """All of them, or a third where `make test-simd` repeats tests that have made them all."""
    return -(-count // 3) if os.environ.get("DUALGAP_REPEATED") else count
