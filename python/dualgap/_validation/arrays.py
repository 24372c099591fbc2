"""Arrays of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_numpy(name: str, values: Any) -> Any:
    """Convert an array of another library to NumPy's; return anything else as it is.

    scikit-learn leaves such arrays alone while ``array_api_dispatch`` is on. The core reads NumPy's
    arrays only, so every array argument passes this function.

    Raises
    ------
    TypeError
        If the array cannot be read from here, as one on a GPU. The message names the argument.
    """
    foreign = hasattr(values, "__array_namespace__") or hasattr(values, "__dlpack__")
    if not foreign or isinstance(values, np.ndarray | np.generic):
        return values
    try:
        array = np.asarray(values)
    except Exception as error:
        msg = (
            f"{name}: an array of {type(values).__module__.partition('.')[0]} could not be "
            f"converted to NumPy ({error}); convert it, on the CPU, and give the result"
        )
        raise TypeError(msg) from error
    if array.dtype.kind == "O":
        msg = f"{name}: {type(values).__name__} does not convert to an array of NumPy; convert it"
        raise TypeError(msg)
    return array
