"""Property tests draw the same examples in every run; `--hypothesis-profile=default` explores."""

import signal
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from dualgap.losses import LOSSES, Loss, StructuredHinge

# A shell starts background jobs with SIGINT ignored, and every child inherits that: the tests that
# interrupt a fit would wait for ever. A handler of our own is reset to the default by exec, so the
# programs that tests start are interruptible, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

# A value of each parameter that a loss of the registry may take, for five classes.
PARAMETERS: dict[str, Any] = {"k": 3, "weights": [0.5, 0.3, 0.2, 0.0, 0.0]}
MARGIN_LOSSES = [
    Loss(name, **{parameter: PARAMETERS[parameter] for parameter in parameters})
    for name, parameters in LOSSES.items()
]
MARGIN_LOSSES.append(StructuredHinge(np.abs(np.subtract.outer(np.arange(5), np.arange(5)))))


@pytest.fixture(
    params=MARGIN_LOSSES, ids=lambda loss: loss.name if loss.costs is None else "structured-hinge"
)
def loss(request: pytest.FixtureRequest) -> Any:
    """Each multi-category loss, for five classes."""
    return request.param
