"""Converts values to plain JSON types, and finds differences between two sets of settings."""

import json
import math
import os
from collections.abc import Mapping
from typing import Any


def plain(value: Any, where: str) -> Any:
    """Convert a value to plain JSON types: numpy and torch scalars become Python's, paths become strings.

    Raises:
        ValueError: NaN, infinity, an array, or another value that JSON does not support; the message says where.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}; only finite numbers can be saved")
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}: {key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # numpy and torch scalars have no dimensions, and item() returns their value.
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return plain(value.item(), where)
    raise ValueError(f"{where} is a {type(value).__name__}, which JSON does not know; pass numbers, strings and lists")


def first_difference(stored: Any, now: Any, name: str = "") -> tuple[str, str, str] | None:
    """Return (name, stored value, current value) of the first setting that differs, ``None`` if all are equal.

    Nested settings have dotted names. Values are in JSON notation; ``absent`` if one side lacks the setting.
    """
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in [*stored, *(key for key in now if key not in stored)]:
            path = f"{name}.{key}" if name else key
            if key not in stored or key not in now:
                return path, _shown(stored, key), _shown(now, key)
            difference = first_difference(stored[key], now[key], path)
            if difference:
                return difference
        return None
    same = stored == now and isinstance(stored, bool) == isinstance(now, bool)
    return None if same else (name, json.dumps(stored, ensure_ascii=False), json.dumps(now, ensure_ascii=False))


def _shown(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings[key], ensure_ascii=False) if key in settings else "absent"
