"""Shared fixtures: losses, repeatable examples, and the marker for `make test-simd`.

Property tests draw the same examples in every run; `--hypothesis-profile=default` draws new ones.
"""

import gc
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from repeats import REPEATED, sample, trials

from dualgap import _core
from dualgap.losses import LOSSES, Loss, StructuredHinge

# A shell starts background jobs with SIGINT ignored, and their children inherit this, so tests that
# interrupt a fit would hang. A Python handler also makes programs that tests start interruptible,
# because exec resets a handler, but not an ignored signal, to the default.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests and the modules that they import stay in memory until the end, so scanning them for garbage
# is useless. Without garbage collection, pytest collects the tests in three quarters of the time.
gc.disable()

# `make test-simd` repeats most tests of these folders under the other instruction sets.
NUMERICAL = {
    *("certificates", "distributed", "frank_wolfe", "logistic", "multiclass", "polynomial"),
    *("recommend", "sequence", "structured"),
}
# Test files that do not depend on the instruction set: tests of arguments, files, metrics,
# interruptions, and of searches, which only compare with single fits.
INDEPENDENT = {
    *("test_consensus_cv.py", "test_logistic_cv.py", "test_polynomial_cv.py"),
    *("test_metrics.py", "test_models_as_estimators.py", "test_oracle_checks.py"),
    *("test_polynomial_errors.py", "test_recommend_files.py", "test_recommend_input.py"),
    *("test_resume.py", "test_tagger_input.py", "test_user_code.py"),
}
# Tests that use one of these fixtures do not depend on the instruction set, because they write
# files, or start or end workers.
RESOURCE_FIXTURES = {"client", "new_cluster", "tmp_path"}
# Tests with one of these words in their names are about signals or Dask; they are not repeated.
OTHER_SUBJECTS = ("ctrl_c", "dask", "interrupt")

settings.register_profile("repeatable", derandomize=True, max_examples=trials(100), deadline=None)
settings.load_profile("repeatable")

# A value for each parameter of the registered losses, for five classes.
PARAMETERS: dict[str, Any] = {"k": 3, "weights": [0.5, 0.3, 0.2, 0.0, 0.0]}
MARGIN_LOSSES = [
    Loss(name, **{parameter: PARAMETERS[parameter] for parameter in parameters})
    for name, parameters in LOSSES.items()
]
MARGIN_LOSSES.append(StructuredHinge(np.abs(np.subtract.outer(np.arange(5), np.arange(5)))))


def is_numerical(path: Path) -> bool:
    """Whether the tests of a file depend on the instruction set."""
    folder = path.relative_to(Path(__file__).parent).parts[0]
    return folder in NUMERICAL and path.name not in INDEPENDENT


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the import of files without any test that `-m every_simd` selects."""
    only = config.option.markexpr == "every_simd" and collection_path.name.startswith("test_")
    return True if only and not is_numerical(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that depend on the instruction set; repeated runs keep some of their cases."""
    here = Path(__file__).parent
    for item in items:
        around = RESOURCE_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        elsewhere = any(word in item.name for word in OTHER_SUBJECTS)
        if here in item.path.parents and is_numerical(item.path) and not (around or elsewhere):
            item.add_marker(pytest.mark.every_simd)
    if REPEATED:
        marked = [item.nodeid for item in items if item.get_closest_marker("every_simd")]
        kept = sample(marked, _core.SIMD)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
        items[:] = [item for item in items if item.nodeid in kept]


def pytest_collection_finish() -> None:
    """Enable garbage collection again, and exclude the collected tests from it."""
    gc.freeze()
    gc.enable()


@pytest.fixture(
    params=MARGIN_LOSSES, ids=lambda loss: loss.name if loss.costs is None else "structured-hinge"
)
def loss(request: pytest.FixtureRequest) -> Any:
    """Return each multi-category loss, for five classes."""
    return request.param
