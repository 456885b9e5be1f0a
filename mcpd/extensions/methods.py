"""What the built-in extensions add to `Server` for authors: methods, and words for its help and its signature.

Loaded with every server. A further extension adds its methods to the bases of `BuiltInMethods`, and its `HELP`.
"""

from __future__ import annotations

from inspect import Parameter, Signature, cleandoc, signature
from typing import Any, TypeVar

from .builtin import BUILT_IN
from .ui import api as ui

__all__ = ["BuiltInMethods", "with_help"]

C = TypeVar("C", bound=type)

_HELP = (ui.HELP,)


class _ConstructorSignature:
    """What `inspect.signature` and `help` show of the constructor: options of extensions one by one."""

    def __get__(self, instance: object, owner: Any) -> Signature:
        own = signature(owner.__init__)
        parameters: list[Parameter] = []
        for parameter in list(own.parameters.values())[1:]:
            if parameter.kind is Parameter.VAR_KEYWORD and "BuiltInOptions" in str(parameter.annotation):
                for row in BUILT_IN:
                    of_extension = signature(row.load_class()).parameters.values()
                    parameters += [each for each in of_extension if each.kind is Parameter.KEYWORD_ONLY]
            else:
                parameters.append(parameter)
        return own.replace(parameters=parameters, return_annotation=Signature.empty)


class BuiltInMethods(ui.AppsMethods):
    """A part of `Server`: no object of its own."""

    __signature__ = _ConstructorSignature()


def with_help(cls: C) -> C:
    """Add to the help of a server, and of its methods, what extensions say of their options there."""
    for texts in _HELP:
        for name, text in texts.items():
            described = getattr(cls, name) if name else cls
            if described.__doc__ is not None:
                described.__doc__ = f"{cleandoc(described.__doc__)}\n\n{text}"
    return cls
