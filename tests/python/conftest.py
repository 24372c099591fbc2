"""Property tests draw the same examples in every run; `--hypothesis-profile=default` explores."""

import signal
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from dualgap import losses

# A shell starts background jobs with SIGINT ignored, and every child inherits that: the tests that
# interrupt a fit would wait for ever. A handler of our own is reset to the default by exec, so the
# programs that tests start are interruptible, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

RHO = [0.5, 0.3, 0.2, 0.0, 0.0]
MARGIN_LOSSES = [
    losses.MaxHinge(),
    losses.TopK(3),
    losses.Usunier(3),
    losses.WeightedTopK(RHO),
    losses.WeightedUsunier(RHO),
    losses.WestonWatkins(),
    losses.StructuredHinge(np.abs(np.subtract.outer(np.arange(5), np.arange(5)))),
]


@pytest.fixture(params=MARGIN_LOSSES, ids=lambda loss: type(loss).__name__)
def loss(request: pytest.FixtureRequest) -> Any:
    """Each multi-category loss, for five classes."""
    return request.param
