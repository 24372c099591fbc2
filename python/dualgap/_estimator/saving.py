"""Model files: one format for every estimator, safe to load.

A model file is an npz archive (`dualgap._npz`): plain arrays, and a description in JSON with the
format, the class, its parameters and its fitted attributes. Loading executes nothing in the file.

JSON has no arrays, tuples, sets or objects. Each of these is stored as a JSON object with a single
key, "$" followed by the type, whose value holds the content.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import IO, Any, ClassVar, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dualgap._estimator.display import record_html
from dualgap._npz import dump_npz, read_meta, read_npz, refused_as, write_npz
from dualgap._sparse import checked_csr

__all__ = ["Estimator", "require", "storable"]

FORMAT = "dualgap model 1"

Arrays = dict[str, NDArray[Any]]

# Parameters that are left out of the file if they cannot be stored. They affect only how a fit
# runs, and may hold objects that exist only in the running process.
_OF_THE_PROCESS = {"callback", "checkpoint", "client", "cv", "random_state", "resume", "scoring"}

_Class = TypeVar("_Class", bound=type)

_STORABLE: dict[str, type] = {}


def storable(cls: _Class) -> _Class:
    """Allow model files to contain instances of this dataclass, whose fields must be storable."""
    _STORABLE[cls.__name__] = cls
    return cls


def require(condition: object, text: str = "the arrays are inconsistent") -> None:
    """Raise a ValueError unless the condition holds. `load` adds the name of the file."""
    if not condition:
        raise ValueError(text)


class Estimator(BaseEstimator):  # type: ignore[misc]
    """Tags, model files and HTML of every estimator."""

    # Attributes to save in addition to those whose names end with an underscore.
    _saved: ClassVar[tuple[str, ...]] = ()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + record_html(self)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] += record_html(self)
        return bundle

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a model file.

        The file is an npz archive of plain arrays with a description in JSON, without pickle. It
        holds the parameters and all fitted attributes, but not the state that `warm_start` needs to
        continue a fit. A parameter whose value exists only in this process (`callback`, a
        `RandomState`, a splitter, a scorer, a Dask client) is left out, and has its default in a
        loaded estimator.

        Parameters
        ----------
        path : str or path
            File to write. An existing file is replaced atomically.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        TypeError
            If a parameter or an attribute cannot be stored, such as a loss or a model written in
            Python, or a callable. Pickle such an estimator instead.
        OSError
            If the file cannot be written. Its previous content is then unchanged.
        """
        write_npz(path, *pack(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator that `save` wrote.

        It makes the same predictions, bit for bit, as the estimator that was saved. Nothing in the
        file is executed.

        Parameters
        ----------
        path : str or path
            File to read.

        Returns
        -------
        estimator
            A fitted estimator of this class.

        Raises
        ------
        ValueError
            If the file is damaged, or does not hold an estimator of this class.
        OSError
            If the file cannot be read.
        """
        estimator, _ = read_model(path, cls, f"a saved {cls.__name__}")
        return estimator

    def _state(self) -> dict[str, Any]:
        """Return the fitted attributes as values that a model file can hold."""
        names = [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]
        kept = [name for name in self._saved if name in vars(self)]
        return {name: getattr(self, name) for name in (*names, *kept)}

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Set the attributes from the result of `_state`, and check them."""
        declared: Any = getattr(self, "__dataclass_fields__", {})
        known = {name for name, each in declared.items() if not each.init}
        known |= {"n_features_in_", "feature_names_in_", *self._saved}
        for name, value in state.items():
            require(name in known, f"unknown attribute {name!r}")
            setattr(self, name, value)
        self._check_restored()

    def _check_restored(self) -> None:
        """Raise one of the errors in `UNREADABLE` if attributes contradict each other."""


def pack(
    estimator: Any, notes: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the description and the arrays of a model file.

    Parameters
    ----------
    estimator : Estimator
        A fitted estimator.
    notes : mapping, optional
        Entries to store under "notes" in the description.
    """
    check_is_fitted(estimator)
    arrays: Arrays = {}
    meta = {"format": FORMAT, **_describe(estimator, "", arrays)}
    if notes is not None:
        meta["notes"] = dict(notes)
    return meta, arrays


def dump_model(file: IO[bytes], estimator: Any, notes: Mapping[str, Any]) -> None:
    """Write a fitted estimator and notes to an open file."""
    dump_npz(file, *pack(estimator, notes))


_Estimator = TypeVar("_Estimator")


def read_model(
    source: str | os.PathLike[str] | IO[bytes],
    classes: type[_Estimator] | Sequence[type[_Estimator]],
    what: str,
    name: str = "-",
) -> tuple[_Estimator, Any]:
    """Return the estimator and the notes of a model file.

    Parameters
    ----------
    source : path or binary file
        The model file.
    classes : type or sequence of type
        The required class, or the allowed classes.
    what : str
        Description of the expected content, for error messages.
    name : str, default="-"
        Name of an open file, for error messages.
    """
    path = source if isinstance(source, str | os.PathLike) else name
    with refused_as(path, what):
        arrays = read_npz(source)
        meta = read_meta(arrays, format=FORMAT)
        known = [classes] if isinstance(classes, type) else classes
        cls = next((each for each in known if each.__name__ == meta["kind"]), None)
        if cls is None:
            names = " or ".join(repr(each.__name__) for each in known)
            msg = f"kind is {meta['kind']!r}, expected {names}"
            raise ValueError(msg)
        require(meta["fitted"], "no fitted attributes")
        return _build(cls, meta, arrays), meta.get("notes")


def _is_fitted(estimator: Any) -> bool:
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def _describe(estimator: Any, prefix: str, arrays: Arrays) -> dict[str, Any]:
    """Return the class, the parameters and the attributes of an estimator."""
    parameters = {}
    for name, value in estimator.get_params(deep=False).items():
        own: Arrays = {}
        try:
            parameters[name] = _encode(value, f"{prefix}parameters.{name}", own)
        except TypeError:
            if name not in _OF_THE_PROCESS:
                raise
        else:
            arrays.update(own)
    # A parameter may be an estimator that is not fitted.
    state = estimator._state() if _is_fitted(estimator) else {}
    fitted = {name: _encode(value, f"{prefix}{name}", arrays) for name, value in state.items()}
    return {"kind": type(estimator).__name__, "parameters": parameters, "fitted": fitted}


def _build(cls: Any, meta: Mapping[str, Any], arrays: Arrays) -> Any:
    """Rebuild the estimator from the result of `_describe`."""
    parameters = {name: _decode(value, arrays) for name, value in meta["parameters"].items()}
    missing = set(cls._get_param_names()) - set(parameters) - _OF_THE_PROCESS
    require(not missing, f"the parameters {sorted(missing)} are missing")
    estimator = cls(**parameters)
    if hasattr(estimator, "_check_parameters"):
        estimator._check_parameters()
    fitted = {name: _decode(value, arrays) for name, value in meta["fitted"].items()}
    if fitted:
        estimator._restore(fitted)
    return estimator


def _encode(value: Any, path: str, arrays: Arrays) -> Any:
    """Convert a value to JSON; arrays go to `arrays` under names that begin with `path`."""
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    for kind, encode in _ENCODERS:
        if isinstance(value, kind):
            return encode(value, path, arrays)
    # A subclass that a user wrote is not stored as its base class, which may behave differently.
    if type(value).__module__.startswith("dualgap."):
        for cls in type(value).__mro__:
            if _STORABLE.get(cls.__name__) is cls:
                items = {each.name: getattr(value, each.name) for each in fields(cls) if each.init}
                return {"$object": [cls.__name__, _encode_items(items, path, arrays)]}
    msg = (
        f"save: {path.removeprefix('parameters.')}: an object of the class {type(value).__name__} "
        "cannot be stored in a model file; pickle the estimator instead"
    )
    raise TypeError(msg)


def _encode_array(value: NDArray[Any], path: str, arrays: Arrays) -> Any:
    if value.dtype.kind == "O" and value.ndim == 1:
        return {"$objects": [_encode(item, path, arrays) for item in value]}
    if value.dtype.kind not in "biufUS":
        msg = (
            f"save: {path.removeprefix('parameters.')}: an array of {value.dtype} cannot be stored "
            "in a model file; pickle the estimator instead"
        )
        raise TypeError(msg)
    return {"$array": _added(value, path, arrays)}


def _encode_sparse(value: Any, path: str, arrays: Arrays) -> Any:
    rows = sp.csr_array(value)
    parts = {"data": rows.data, "indices": rows.indices, "indptr": rows.indptr}
    names = [_added(part, f"{path}.{name}", arrays) for name, part in parts.items()]
    return {"$csr": [*names, *rows.shape]}


def _encode_items(items: Mapping[Any, Any], path: str, arrays: Arrays) -> Any:
    return [
        [_encode(key, path, arrays), _encode(value, f"{path}.{key}", arrays)]
        for key, value in items.items()
    ]


def _encode_list(values: Iterable[Any], path: str, arrays: Arrays) -> list[Any]:
    return [_encode(value, f"{path}.{n}", arrays) for n, value in enumerate(values)]


def _added(array: NDArray[Any], path: str, arrays: Arrays) -> str:
    """Add an array under a unique name; return the name."""
    name = path
    while name in arrays or name == "meta":
        name += "'"
    arrays[name] = array
    return name


_ENCODERS: list[tuple[Any, Callable[[Any, str, Arrays], Any]]] = [
    (np.ndarray, _encode_array),
    ((sp.sparray, sp.spmatrix), _encode_sparse),
    (list, _encode_list),
    (tuple, lambda value, path, arrays: {"$tuple": _encode_list(value, path, arrays)}),
    (
        (set, frozenset),
        lambda value, path, arrays: {"$set": _encode_list(sorted(value, key=repr), path, arrays)},
    ),
    (Mapping, lambda value, path, arrays: {"$dict": _encode_items(value, path, arrays)}),
    (
        Estimator,
        lambda value, path, arrays: {"$estimator": _describe(value, f"{path}.", arrays)},
    ),
]


def _decode(value: Any, arrays: Arrays) -> Any:
    """Rebuild the value from the result of `_encode`."""
    if isinstance(value, list):
        return [_decode(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    return _DECODERS[kind](content, arrays)


def _decode_objects(content: Any, arrays: Arrays) -> NDArray[Any]:
    found = np.empty(len(content), dtype=object)
    for n, each in enumerate(content):
        found[n] = _decode(each, arrays)
    return found


def _decode_csr(content: Any, arrays: Arrays) -> sp.csr_array:
    data, indices, indptr = (arrays[name] for name in content[:3])
    return checked_csr(data, indices, indptr, tuple(content[3:]))


def _decode_items(content: Any, arrays: Arrays) -> dict[Any, Any]:
    return {_decode(key, arrays): _decode(value, arrays) for key, value in content}


def _decode_object(content: Any, arrays: Arrays) -> Any:
    name, items = content
    return _STORABLE[name](**_decode_items(items, arrays))


def _decode_estimator(content: Any, arrays: Arrays) -> Any:
    # The root package contains all estimators. It is already imported; importing it here would be
    # circular.
    cls = getattr(sys.modules[__name__.partition(".")[0]], content["kind"])
    require(isinstance(cls, type) and issubclass(cls, Estimator), "not an estimator")
    return _build(cls, content, arrays)


_DECODERS: dict[str, Callable[[Any, Arrays], Any]] = {
    "$array": lambda content, arrays: arrays[content],
    "$objects": _decode_objects,
    "$csr": _decode_csr,
    "$tuple": lambda content, arrays: tuple(_decode(each, arrays) for each in content),
    "$set": lambda content, arrays: {_decode(each, arrays) for each in content},
    "$dict": _decode_items,
    "$object": _decode_object,
    "$estimator": _decode_estimator,
}
