"""An author's function: parameters that clients fill in, parameters that are injected, and its docstring.

pydantic validates the arguments as a call of a function with the first kind of parameters only. That way its errors
name the function and the parameter.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import cached_property
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, validate_call

from mcpd.compat.fastmcp.context import CurrentContext, Dependency, OptionalCurrentContext, resolve
from mcpd.compat.lowlevel.context import SharedContext
from mcpd.compat.sdk.functions import call, includes, warn_of_untyped_context
from mcpd.server.functions.annotations import call_method, docstring_of, is_coroutine_function
from mcpd.server.functions.docstring import parse


def _function_name(fn: Any) -> str:
    while isinstance(fn, functools.partial) and not hasattr(fn, "__name__"):
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__


class Function:
    """A function for a component. `kind` is the plural that errors name, such as "tools".

    Raises ValueError for parameters that clients cannot fill in, and for a lambda without a `name`.
    """

    def __init__(self, fn: Any, kind: str, *, name: str | None = None, takes_keywords: bool = False) -> None:
        self.name = _function_name(fn)
        self.component_name = name or self.name
        self._original = fn
        # A callable object is called by its method, whose signature has the parameters.
        if isinstance(fn, staticmethod):
            fn = fn.__func__
        elif not inspect.isroutine(fn) and not isinstance(fn, functools.partial):
            fn = fn.__call__
        self.fn: Callable[..., Any] = fn
        self.signature = inspect.signature(fn)
        self.hints = _hints(fn)
        self.injected = self._find_injected()
        warn_of_untyped_context(fn, self.name)
        self._check(kind, takes_keywords)

    def _check(self, kind: str, takes_keywords: bool) -> None:
        if self.component_name == "<lambda>":
            raise ValueError("You must provide a name for lambda functions")
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise ValueError(f"Functions with *args are not supported as {kind}")
            if parameter.kind is parameter.VAR_KEYWORD and not takes_keywords:
                raise ValueError(f"Functions with **kwargs are not supported as {kind}")
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise ValueError(f"Functions with positional-only parameters are not supported as {kind}")

    def _find_injected(self) -> dict[str, Dependency[Any]]:
        found: dict[str, Dependency[Any]] = {}
        for name, parameter in self.signature.parameters.items():
            hint = self.hints.get(name, parameter.annotation)
            if isinstance(parameter.default, Dependency):
                found[name] = parameter.default
            elif includes(hint, SharedContext):
                found[name] = CurrentContext() if parameter.default is parameter.empty else OptionalCurrentContext()
            elif get_origin(hint) is Annotated:
                found.update((name, mark) for mark in get_args(hint)[1:] if isinstance(mark, Dependency))
        return found

    @property
    def doc(self) -> str | None:
        """The docstring of the function, or of the class of a callable object."""
        kind = type(self._original)
        of_class = inspect.getdoc(kind) if kind.__doc__ and call_method(self._original) else None
        return of_class or docstring_of(self._original)

    @cached_property
    def arguments(self) -> dict[str, inspect.Parameter]:
        """The parameters that clients fill in."""
        return {name: parameter for name, parameter in self.signature.parameters.items() if name not in self.injected}

    @cached_property
    def returns(self) -> Any:
        """The return annotation, or `inspect.Signature.empty`."""
        written = self.signature.return_annotation
        return None if written is None else self.hints.get("return", written)

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Validates arguments, and has their schema."""
        return TypeAdapter(self._binder())

    @cached_property
    def _validated_call(self) -> Callable[..., Any]:
        function: Callable[..., Any] = validate_call(self._binder())
        return function

    def _binder(self) -> Any:

        def bind(*args: Any, **kwargs: Any) -> inspect.BoundArguments:
            return signature.bind(*args, **kwargs)

        signature = inspect.Signature(list(self.arguments.values()))
        wrapper: Any = bind
        wrapper.__name__ = wrapper.__qualname__ = self.name
        wrapper.__signature__ = signature
        wrapper.__module__ = self.fn.__module__
        wrapper.__annotations__ = {
            name: self.hints.get(name, parameter.annotation)
            for name, parameter in self.arguments.items()
            if name in self.hints or parameter.annotation is not parameter.empty
        }
        return wrapper

    def validated(self, arguments: dict[str, Any], *, by_name: bool = False) -> dict[str, Any]:
        """Return the arguments of a call. Raises pydantic's ValidationError, which names the call, or with `by_name`
        the function."""
        bound = self._validated_call(**arguments) if by_name else self.adapter.validate_python(arguments)
        values = {**bound.arguments}
        for name, parameter in self.arguments.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                values.update(values.pop(name, {}))
        return values

    async def call(self, values: dict[str, Any], *, in_thread: bool = True) -> Any:
        """Call the function with these values and the injected ones. A generator's items are returned as a list."""
        async with AsyncExitStack() as stack:
            injected = await resolve(self.injected, stack) if self.injected else {}
            function = functools.partial(self.fn, **values, **injected)
            is_plain = not is_coroutine_function(self.fn) and not inspect.isasyncgenfunction(self.fn)
            result = await call(functools.partial(_call_fully, function), in_thread=in_thread and is_plain)
            return [item async for item in result] if inspect.isasyncgen(result) else result


def _call_fully(function: Callable[[], Any]) -> Any:
    result = function()
    return list(result) if inspect.isgenerator(result) else result


def _hints(fn: Any) -> dict[str, Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    try:
        return {name: _with_description(hint) for name, hint in get_type_hints(fn, include_extras=True).items()}
    except Exception:  # unknown names; pydantic raises an error where it needs them
        return {}


def _with_description(hint: Any) -> Any:
    """Return `Annotated[str, "text"]` with the text as its description."""
    if get_origin(hint) is Annotated and len(parts := get_args(hint)) == 2 and isinstance(parts[1], str):
        return Annotated[parts[0], Field(description=parts[1])]
    return hint


# -- docstrings ------------------------------------------------------------------------------

# The layouts are Google's ("Args:" over an indented block), NumPy's (a heading over dashes) and reST's (":param x:").

_HEADING = re.compile(r"^(\w[\w\s-]*):(?:\s+\S.*)?\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\(.*?\))?:\s*(.*)$")
_OTHER_SECTION = re.compile(
    r"^(?:(?P<heading>\w[\w ]*)\n-{3,}\s*|:(?:param|arg|argument|key|keyword|type|returns?|rtype|raises?)\b.*)$",
    re.MULTILINE,
)
"""The beginning of a section in NumPy's layout, or of a field in reST."""
_ARGUMENTS = frozenset(("args", "arguments", "params", "parameters"))
_ITEMIZED = _ARGUMENTS | {"exceptions", "raises"}
_KNOWN = _ARGUMENTS | frozenset(
    ("keyword args", "keyword arguments", "other args", "other arguments", "other params", "other parameters",
     "type args", "type arguments", "type params", "type parameters", "type aliases", "raises", "exceptions",
     "returns", "yields", "receives", "examples", "attributes", "functions", "methods", "classes", "modules",
     "warns", "warnings", "attention", "caution", "danger", "error", "example", "hint", "important", "note", "notes",
     "raise", "references", "return", "see also", "see-also", "tip", "todo", "warning", "yield")
)  # fmt: skip
"""Headings that end a description. Text under any other heading is part of it, unless one of these follows."""


def described(doc: str | None) -> tuple[str | None, dict[str, str]]:
    """Return the description in a docstring and the texts of the parameters, in the way of `fastmcp`."""
    if not doc:
        return None, {}

    sections = _sections(doc.split("\n"))
    if any(name in _KNOWN and not (name in _ITEMIZED and _is_prose(block)) for name, block in sections):
        texts: dict[str, str] = {}
        for name, block in sections:
            if name in _ARGUMENTS:
                texts.update(_entries(block))
        prose = ("\n".join(block).strip() for name, block in sections if not name)
        return next(filter(None, prose), None), texts

    for other in _OTHER_SECTION.finditer(doc):
        if other["heading"] is None or other["heading"].lower() in _KNOWN:
            return doc[: other.start()].strip() or None, parse(doc).parameters
    return doc, {}


def dropped_lines(doc: str | None) -> list[str]:
    """Return the lines about arguments that `fastmcp` drops, since they are not `name: text`."""
    lines: list[str] = []
    for name, block in _sections((doc or "").split("\n")):
        if name in _ARGUMENTS and not _is_prose(block):
            indent = _indent(block)
            outermost = (line[indent:].rstrip() for line in block if line[indent : indent + 1].strip())
            lines += (line for line in outermost if not _ENTRY.match(line))
    return lines


def _sections(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Return each heading with its indented block. Lines outside of sections have the heading ""."""
    found: list[tuple[str, list[str]]] = [("", [])]
    is_code = False
    at = 0
    while at < len(lines):
        is_code ^= lines[at].lstrip().startswith("```")
        heading = None if is_code or (at and lines[at - 1].strip()) else _HEADING.match(lines[at])
        end = at + 1
        if heading is None or not "".join(lines[end : end + 1]).startswith(" "):
            found[-1][1].append(lines[at])
        else:
            while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
                end += 1
            found += [(heading[1].lower(), lines[at + 1 : end]), ("", [])]
        at = end
    return found


def _indent(block: list[str]) -> int:
    return next((len(line) - len(line.lstrip()) for line in block if line.strip()), 0)


def _is_prose(block: list[str]) -> bool:
    """Return whether none of the outermost lines has a colon."""
    indent = _indent(block)
    return not any(":" in line and line[indent : indent + 1].strip() for line in block)


def _entries(block: list[str]) -> dict[str, str]:
    """Return the texts of `name (type): text`. Lines that are indented below lose two indents, or all they have."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    indent = _indent(block)
    for line in block:
        text = line[indent:]
        if text[:1].strip():
            entry = _ENTRY.match(text)
            current = [] if entry is None else found.setdefault(entry[1], [entry[2]])
        else:
            current.append(line[2 * indent :] if line.startswith(2 * indent * " ") else line.lstrip())
    return {name: "\n".join(texts).rstrip("\n") for name, texts in found.items()}
