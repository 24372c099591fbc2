from collections.abc import Callable
from typing import Any, Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from dualgap._base import Rows

__version__: Final[str]
OUTPUT_LOSSES: Final[list[str]]
PENALTIES: Final[list[str]]

class _Model(TypedDict):
    basis: NDArray[np.float64]
    output: NDArray[np.float64]
    linear: NDArray[np.float64] | None

class _Fit(_Model):
    outcome: str
    primal: float
    dual: float
    scale: float
    history: dict[str, NDArray[Any]]
    path: dict[str, NDArray[Any]]

_Targets = NDArray[np.uint32] | NDArray[np.float64]

def fit_polynomial(
    rows: Rows,
    targets: _Targets,
    *,
    n_outputs: int,
    kernel: str,
    augmented: bool,
    alpha: float | None,
    loss: str,
    penalty: str,
    radius: float,
    n_components: int,
    refit: str,
    selection_tol: float,
    tol: float,
    max_iter: int,
    seed: int,
    n_threads: int,
    sample_weight: NDArray[np.float64] | None = None,
    init: _Model | None = None,
    validation: tuple[Rows, _Targets] | None = None,
    callback: Callable[[int, float, float, float], object] | None = None,
) -> _Fit: ...
def predict_polynomial(
    rows: Rows,
    model: _Model,
    *,
    kernel: str,
    augmented: bool,
    n_threads: int,
) -> NDArray[np.float64]: ...
