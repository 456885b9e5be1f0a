"""Results of functions: what a return annotation promises, and how values become JSON.

Never looks at values of one call, and makes no schema. msgspec's hooks are thin here, because `type_hooks` is loaded
only for types that msgspec does not know. Spec: 2025-11-25 server/tools, structured content.
"""

from __future__ import annotations

import collections.abc
import os
import typing
from collections.abc import Callable
from inspect import Parameter
from types import NoneType, UnionType
from typing import Annotated, Any, Union

import msgspec

_TEXT: tuple[Any, ...] = (Parameter.empty, None, NoneType, Any, object, str, bytes, bytearray, memoryview)
_LISTS = frozenset(
    (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
)
_AWAITABLES = frozenset((collections.abc.Awaitable, collections.abc.Coroutine))


def awaited(hint: Any) -> Any:
    """Return the final type of a plain function that returns an awaitable."""
    while typing.get_origin(hint) in _AWAITABLES:
        hint = typing.get_args(hint)[-1]
    return hint


def data_type(hint: Any, is_content: Callable[[Any], bool] | None = None) -> Any:
    """Return a return annotation as msgspec reads it if the result is data; otherwise None.

    A result is not data if it can only be text, bytes, a path or None. Nor is it data if content may be returned, alone
    or in a list, or if the annotation is missing, Any, or a type that nothing can write as JSON. `is_content` says
    whether values of a class go to the client unchanged, such as content blocks.
    """
    if is_content is not None and typing.get_origin(hint) is Annotated and is_content(hint.__origin__):
        # The official SDK's form for a result made by hand: the class of its data is beside it.
        data = [item for item in hint.__metadata__ if isinstance(item, type)]
        return _readable(data[0]) if data else None
    kinds = members_of(hint)
    if all(map(_is_text, kinds)) or (is_content is not None and _has_content(kinds, is_content)):
        return None
    return _readable(hint)


def _readable(hint: Any) -> Any:
    from .hints import readable_output  # most functions return text

    return readable_output(hint)


def is_block_list(hint: Any, is_content: Callable[[Any], bool]) -> bool:
    """Return whether a list of content may be returned, so that an empty list means no content."""
    lists = [member for member in members_of(hint) if typing.get_origin(member) in _LISTS]
    return any(is_content(kind) for member in lists for item in typing.get_args(member) for kind in members_of(item))


def members_of(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type, without Annotated and NewType."""
    while True:
        if typing.get_origin(hint) is Annotated:
            hint = hint.__origin__
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        else:
            break
    if typing.get_origin(hint) in (Union, UnionType):
        return tuple(part for member in typing.get_args(hint) for part in members_of(member))
    return (hint,)


def _is_text(hint: Any) -> bool:
    return (
        any(hint is text for text in _TEXT)
        or isinstance(hint, typing.TypeVar)
        or (isinstance(hint, type) and issubclass(hint, os.PathLike))
    )


def _has_content(kinds: tuple[Any, ...], is_content: Callable[[Any], bool]) -> bool:
    for member in kinds:
        if (typing.get_origin(member) or member) in _LISTS:
            items = [item for item in typing.get_args(member) if item is not ...]
            if not items or any(item is Any or item is object for item in items):
                return True
            if any(_has_content(members_of(item), is_content) for item in items):
                return True
        elif is_content(member):
            return True
    return False


def dec_hook(kind: Any, value: Any) -> Any:
    """Make a `kind` of decoded JSON. Raises ValueError, with a text for the model, if it does not fit."""
    from . import type_hooks

    return type_hooks.dec_hook(kind, value)


def output_hook(kind: Any, value: Any) -> Any:
    """`dec_hook` for a check of a result. Raises ValueError if it does not fit."""
    from . import type_hooks

    return type_hooks.output_hook(kind, value)


def enc_hook(value: Any) -> Any:
    """Return what msgspec writes for a type it does not know. Raises TypeError if there is nothing sensible."""
    from . import type_hooks

    return type_hooks.enc_hook(value)


def to_builtins(value: Any) -> Any:
    """Return `value` as JSON types: None, bool, int, float, str, list, and dict with string keys."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=enc_hook)
