"""Reading numpy arrays, scalars and dtypes with torch's safe loader, without calling numpy's own loaders.

A pickled array calls ``numpy._core.multiarray._reconstruct`` and the ``__setstate__`` of the array and of its dtype.
These trust their input: with an object dtype whose flags deny that it holds objects, numpy follows addresses read from
the file. The replacements here accept only numbers, text and dates, and rebuild the dtype.
"""

import pickle
import types
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

#: bool, signed and unsigned integers, floating point, complex, bytes, text, time spans and dates
_PLAIN = "biufcSUmM"

#: the modules that contain numpy's functions: since numpy 2, and before
_MODULES = ("numpy._core.multiarray", "numpy.core.multiarray")


class _Dtype:
    """A dtype being read: numpy accepts it wherever it accepts a dtype, and it is saved as one.

    Attributes:
        dtype: the actual dtype.
    """

    dtype: np.dtype

    def __init__(self, name: str) -> None:
        self.dtype = _plain(name)

    def __setstate__(self, state: tuple) -> None:
        """Set the byte order, and the unit of dates; the name already gives the size."""
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in ("<", ">", "|", "="):
            _refuse("a damaged numpy dtype")
        if any(part is not None for part in state[2:5]):
            _refuse("a numpy dtype with fields")
        if self.dtype.kind in "mM" and len(state) > 8:
            unit, number = _unit(state[8])
            self.dtype = np.dtype(f"{self.dtype.kind}8[{number}{unit}]")
        self.dtype = self.dtype.newbyteorder(state[1])

    def __reduce__(self) -> Any:
        return self.dtype.__reduce__()

    def __eq__(self, other: object) -> bool:
        return self.dtype == (other.dtype if isinstance(other, _Dtype) else other)

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return repr(self.dtype)


class _Array(np.ndarray):
    """An array being read: behaves like any array, and is saved as a plain one, so that every program can read it."""

    def __new__(cls, *arguments: Any) -> "_Array":
        if arguments:
            _refuse("a damaged numpy array")
        return super().__new__(cls, (0,), np.uint8)

    def __setstate__(self, state: tuple) -> None:
        """Set dtype, shape and content, which must be consistent."""
        _, shape, dtype, fortran, content = state if isinstance(state, tuple) and len(state) == 5 else [None] * 5
        if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape) or len(shape) > 32:
            _refuse("a damaged numpy array")
        plain = _checked(dtype, content, int(np.prod(shape, dtype=object)))
        super().__setstate__((1, shape, plain, bool(fortran), content))  # type: ignore[arg-type]

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    if kind not in _stand_ins["numpy.ndarray"]:
        _refuse(f"a numpy array of {kind!r}")
    return _Array()


def _scalar(dtype: Any, content: Any) -> np.generic:
    plain = _checked(dtype, content, 1)
    value: Any = np.frombuffer(content, plain, 1)[0] if plain.itemsize else np.zeros((), plain)[()]
    return value


def _ndarray(*arguments: Any) -> NoReturn:
    """Replace the class passed to ``_reconstruct``; it is never called."""
    _refuse("a call of numpy.ndarray")


def _bytes() -> bytes:
    """Replace ``bytes()``, which pickle protocol 2 calls for the content of an empty array."""
    return b""


def _plain(name: Any) -> np.dtype:
    try:
        dtype = np.dtype(name) if isinstance(name, str) and "," not in name else None
    except TypeError:
        dtype = None
    if dtype is None or dtype.kind not in _PLAIN:
        _refuse("a numpy array of Python objects" if name in ("O", "O8", "O4") else f"a numpy array of {name!r}")
    return dtype


def _checked(dtype: Any, content: Any, items: int) -> np.dtype:
    if not isinstance(dtype, _Dtype):
        _refuse("a damaged numpy array")
    if not isinstance(content, bytes) or len(content) != items * dtype.dtype.itemsize:
        _refuse("a damaged numpy array")
    return dtype.dtype


def _unit(metadata: Any) -> tuple[str, int]:
    try:
        unit, number, *_ = metadata[1]
        unit = unit.decode() if isinstance(unit, bytes) else unit
        np.dtype(f"M8[{int(number)}{unit}]")
    except (TypeError, ValueError, IndexError, AttributeError):
        _refuse("a damaged numpy dtype")
    return unit, int(number)


def _refuse(what: str) -> NoReturn:
    raise pickle.UnpicklingError(f"GLOBAL <{what}>")


def _named(name: str, function: Callable) -> Callable:
    """Return a copy of a function that torch's loader finds under a different name."""
    copy = types.FunctionType(function.__code__, function.__globals__, argdefs=function.__defaults__)
    copy.__module__, _, copy.__qualname__ = name.rpartition(".")
    return copy


def _dtype(name: Any, align: Any = False, copy: Any = False) -> _Dtype:
    """Replace ``numpy.dtype``; alignment and copies are irrelevant for plain dtypes."""
    return _Dtype(name)


_stand_ins: dict[str, list[Callable]] = {
    "numpy.ndarray": [_named("numpy.ndarray", _ndarray)],
    "numpy.dtype": [_named("numpy.dtype", _dtype)],
    "bytes": [_named("builtins.bytes", _bytes)],
    "_reconstruct": [_named(f"{module}._reconstruct", _reconstruct) for module in _MODULES],
    "scalar": [_named(f"{module}.scalar", _scalar) for module in _MODULES],
}


def numpy_stand_ins() -> list[Any]:
    """Return the arguments for ``torch.serialization.add_safe_globals`` that make numpy's data readable."""
    return [_Array, _Dtype, *(function for functions in _stand_ins.values() for function in functions)]
