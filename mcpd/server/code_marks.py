"""Whether a function or an object of an author's is another one since its file was read again: by its code."""

from __future__ import annotations

import functools
import inspect
from types import CodeType
from typing import Any


def mark_of(value: Any) -> object:
    """What is equal for two of the same code; of what has none, its class alone. Lines do not count."""
    while isinstance(value, functools.partial):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    plain = getattr(value, "__func__", value)
    code = getattr(plain, "__code__", None)
    if isinstance(code, CodeType):
        return _of_code(code)
    kind = value if isinstance(value, type) else type(value)
    codes = sorted(
        (name, _of_code(found))
        for name, one in vars(kind).items()
        if isinstance(found := getattr(one, "__code__", None), CodeType)
    )
    return kind.__module__, kind.__qualname__, codes


def _of_code(code: CodeType) -> str:
    inner = [_of_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return f"{code.co_name} {code.co_code.hex()} {code.co_names} {code.co_varnames} {inner}"
