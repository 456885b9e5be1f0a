"""`mcpd check`: problems that only appear once everything is registered, and warnings about what confuses clients or
models.

Reads functions as their authors wrote them; nothing is run. What clients refuse is in `registry/portability.py`, which
`mcpd doctor` uses too.
"""

from __future__ import annotations

import inspect
import typing
from abc import ABCMeta
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from decimal import Decimal
from types import NoneType
from typing import Any

from msgspec import NODEFAULT, Struct, ValidationError, convert, inspect as types
from msgspec.json import encode
from msgspec.structs import fields

from mcpd.errors import McpdError
from mcpd.protocol.principal import Principal
from mcpd.protocol.types.features import GetPromptResult, PromptMessage
from mcpd.protocol.wire.headers import mirrors
from mcpd.server.extensions.base import Extension
from mcpd.server.functions.annotations import plain_function, untyped_context
from mcpd.server.functions.docstring import PARAMETER_SECTIONS, parse
from mcpd.server.functions.results import dec_hook, enc_hook, members_of, to_builtins
from mcpd.server.functions.type_hooks import StandIn, parts_of
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.content import BLOCKS, is_content
from mcpd.server.registry.entries import Problem, ToolEntry
from mcpd.server.registry.portability import (
    description_problems,
    input_schema_problems,
    list_problems,
    name_problems,
    warning,
)
from mcpd.server.registry.resources import FunctionResource, FunctionTemplate
from mcpd.server.registry.tools import FunctionTool, metadata_of

# Classes whose values may replace each other.
_AS_WRITTEN = frozenset((NoneType, bool, int, float, Decimal, str, bytes, list, tuple, set, frozenset, dict))


def advise(catalog: Catalog) -> Iterator[Problem]:
    """Yield all warnings, and each result that cannot be sent."""
    for entry in catalog.tools:
        where = f"tool {entry.key}"
        yield from name_problems(where, entry.key)
        yield from description_problems(where, metadata_of(entry).description)
        yield from _of_schemas(where, entry)
        if isinstance(entry, FunctionTool):
            yield from _of_function(where, entry.callee, has_schema=entry.callee.parameters == ())
            yield from _of_result(where, entry.callee)
            yield from _of_base64(where, entry.callee)

    yield from list_problems([entry.key for entry in catalog.tools])
    if len(catalog.prompts):
        yield from _of_prompts(catalog)

    for template in catalog.templates:
        if isinstance(template, FunctionTemplate):
            yield from _of_function(f"resource template {template.key}", template.callee, has_schema=False)
            yield from _of_result(f"resource template {template.key}", template.callee)

    for resource in catalog.resources:
        if isinstance(resource, FunctionResource):
            yield from _of_result(f"resource {resource.key}", resource.callee)

    # A server that offers a kind without entries has them later, for example from a mounted server.
    count = len(catalog.tools) + len(catalog.resources) + len(catalog.templates) + len(catalog.prompts)
    if not count and catalog.offers.isdisjoint(("tools", "resources", "prompts", "events")):
        text = (
            "it offers nothing: no tool, resource, prompt or event is registered. Import the module that registers "
            "them, or name a function that does, as file.py:main"
        )
        yield warning("server", text)


def token_problems(catalog: Catalog, principals: Iterable[Principal]) -> Iterator[Problem]:
    """Yield users without scopes, known in advance, if tools need scopes; a warning if some tools need none."""
    guarded = [entry.key for entry in catalog.tools if entry.needs and (entry.needs.scopes or entry.needs.by_arguments)]
    for who in principals:
        if guarded and not who.scopes:
            some = ", ".join(guarded[:5]) + (" and others" if len(guarded) > 5 else "")
            text = f"it has no scopes, but these tools need some: {some}; add scopes in a file for --tokens-file"
            yield Problem(f"token of {who.subject}", text, is_error=len(guarded) == len(catalog.tools))


def _of_prompts(catalog: Catalog) -> Iterator[Problem]:
    from mcpd.server.registry.prompts import FunctionPrompt  # loaded only for servers with prompts

    for prompt in catalog.prompts:
        where = f"prompt {prompt.key}"
        if not (prompt.listed(frozenset()).description or "").strip():
            yield warning(where, "no description: people choose prompts by it; write a docstring")
        if isinstance(prompt, FunctionPrompt):
            yield from _of_function(where, prompt.callee, has_schema=False)
            yield from _of_messages(where, prompt.callee)


def _of_schemas(where: str, entry: ToolEntry) -> Iterator[Problem]:
    try:
        listed = to_builtins(entry.listed(frozenset()))
    except Exception:  # reported elsewhere
        return
    yield from input_schema_problems(where, listed.get("inputSchema"))


def _of_base64(where: str, callee: Any) -> Iterator[Problem]:
    # A model copies a file into such an argument character by character.
    try:
        properties = callee.input_schema.get("properties") or {}
    except Exception:  # reported elsewhere
        return
    for name, schema in properties.items():
        is_text = isinstance(schema, dict) and schema.get("type") == "string" and "enum" not in schema
        if is_text and "base64" in f"{name} {schema.get('description', '')}".lower():
            yield warning(
                where, f"{name}: a model would write the whole file as base64; take a File instead: {name}: mcpd.File"
            )


def summary(problems: Sequence[Problem]) -> str:
    """Return the number of problems, such as `1 problem and 2 warnings`; "" without any."""
    errors = sum(problem.is_error for problem in problems)
    counts = ((errors, "problem"), (len(problems) - errors, "warning"))
    return " and ".join(f"{number} {what}{'s' if number > 1 else ''}" for number, what in counts if number)


# -- arguments ---------------------------------------------------------------------------------


def _of_function(where: str, callee: Any, *, has_schema: bool) -> Iterator[Problem]:
    # `has_schema` means that the function takes one dict described by a JSON Schema, or nothing.
    function = plain_function(callee.function)
    try:
        slots = inspect.signature(callee.function).parameters
    except (TypeError, ValueError):
        return

    if not any(slot.kind is inspect.Parameter.VAR_KEYWORD for slot in slots.values()):
        for name in parse(inspect.getdoc(function)).parameters:
            if name not in slots and not (has_schema and slots):
                known = ", ".join(callee.parameters) or "none"
                yield warning(
                    where, f"its docstring describes {name!r}, which is not a parameter; the parameters are {known}"
                )

        for line in callee.description.split("\n"):
            if line.endswith(":") and line[:-1].lower() in PARAMETER_SECTIONS:
                text = f"its docstring's section {line!r} has an unknown form and stays in the description"
                yield warning(where, f"{text}; write `name: what it is` for each parameter")

    if has_schema:
        return
    context = untyped_context(callee.function)
    for name in callee.parameters:
        slot = slots.get(name)
        if context is not None and name == context[0]:
            yield warning(where, f"parameter {name!r} has no annotation, so clients must send it; {context[1]}")
        elif slot is not None and slot.annotation is inspect.Parameter.empty:
            yield warning(where, f"parameter {name!r} has no annotation: models may send anything")

    yield from _of_defaults(where, callee.arguments)


def _of_defaults(where: str, arguments: type[Struct]) -> Iterator[Problem]:
    for field in fields(arguments):
        default = field.default
        if default is NODEFAULT:
            if field.default_factory is NODEFAULT:
                continue
            default = field.default_factory()

        try:
            converted = convert(to_builtins(default), field.type, dec_hook=dec_hook)
        except ValidationError as error:
            text = str(error).partition(" - at")[0].replace("`", "")
            yield warning(where, f"the default of {field.name!r} does not fit its annotation: {text}")
            continue
        except Exception:  # a default that is not JSON, such as a sentinel, is valid
            continue

        if type(default) in _AS_WRITTEN and type(converted) not in _AS_WRITTEN:
            # JSON is converted to such an object, but a default reaches the function unchanged.
            kind = field.type if isinstance(field.type, type) else type(converted)
            text = f"Expected {kind.__qualname__}, got {type(default).__qualname__}"
            yield warning(where, f"the default of {field.name!r} does not fit its annotation: {text}")


# -- results -----------------------------------------------------------------------------------


def _of_result(where: str, callee: Any) -> Iterator[Problem]:
    members = list(members_of(callee.returns))
    if isinstance(callee.output_type, StandIn):
        return  # written by pydantic
    for kind in dict.fromkeys(kind for member in members for kind in _classes(member)):
        if _fails(kind):
            text = "make it a dataclass, or return its data"
            yield Problem(where, f"it returns {kind.__qualname__}, which cannot be written as JSON: {text}")


def _of_messages(where: str, callee: Any) -> Iterator[Problem]:
    members = list(members_of(callee.returns))
    for member in members:
        if not _may_be_messages(member) and (member not in (None, NoneType) or len(members) == 1):
            member = None if member is NoneType else member
            name = str(member) if typing.get_args(member) else getattr(member, "__qualname__", member)
            text = "return text, content blocks, (role, content) or PromptMessage, or a list of them"
            yield Problem(where, f"it returns {name}, for which each call fails: {text}")


def _may_be_messages(hint: Any) -> bool:
    # Return whether a prompt can be made of some value of this type, as far as the type says.
    if hint in (None, NoneType):
        return False
    kind = typing.get_origin(hint) or hint
    if kind is list:
        return any(_may_be_messages(member) for item in typing.get_args(hint) or (Any,) for member in members_of(item))
    if not isinstance(kind, type) or kind in (Any, object, inspect.Parameter.empty):
        return True
    if isinstance(kind, ABCMeta) or getattr(kind, "_is_protocol", False):
        return True
    if kind in (bool, int, float, bytes, dict, set, frozenset):  # subclasses of these are not messages either
        return False
    return issubclass(kind, (str, list, tuple, PromptMessage, GetPromptResult, *BLOCKS)) or bool(kind.__subclasses__())


def _classes(hint: Any) -> list[Any]:
    try:
        return [part.cls for part in parts_of(types.type_info(hint), set()) if isinstance(part, types.CustomType)]
    except Exception:  # such a type has no schema, and may well work
        return []


def _fails(kind: Any) -> bool:
    # Return whether no object of this class can be written, as far as the class says.
    if not isinstance(kind, type) or kind in (object, inspect.Parameter.empty) or is_content(kind):
        return False
    # A subclass may be a dataclass.
    if isinstance(kind, ABCMeta) or getattr(kind, "_is_protocol", False) or kind.__subclasses__():
        return False
    if issubclass(kind, (Mapping, Sequence, Set, ValuesView)) or hasattr(kind, "__fspath__"):
        return False
    if any(hasattr(kind, name) for name in ("model_dump", "tolist", "__dataclass_fields__", "__attrs_attrs__")):
        return False

    try:
        enc_hook(kind.__new__(kind))
    except TypeError:
        return True
    except Exception:
        return False

    return False


def find_problems(catalog: Catalog, extensions: Iterable[Extension]) -> list[Problem]:
    """Return every problem, errors first. Builds every schema on the way."""
    collected = [problem for problems in catalog.source_problems.values() for problem in problems]
    everything = frozenset(extension.id for extension in extensions)
    for entry in catalog.tools.registered:
        if not isinstance(entry, FunctionTool):
            continue
        try:
            mirrors(entry.tool.input_schema or entry.callee.input_schema)
        except McpdError as error:
            collected.append(Problem(f"tool {entry.key}", str(error)))

    for listing in (catalog.tools, catalog.resources, catalog.templates, catalog.prompts):
        for item in listing.registered:
            try:
                encode(item.listed(everything))
            except Exception as error:  # one item that cannot be encoded fails the list for every client
                collected.append(Problem(f"{listing.what} {item.key}", str(error)))

    for name, argument in catalog.completers:
        collected += _completion_problems(catalog, name, argument)
    for extension in extensions:
        collected += extension.problems()
    collected += advise(catalog)
    return sorted(dict.fromkeys(collected), key=lambda problem: not problem.is_error)


def _completion_problems(catalog: Catalog, name: str, argument: str) -> list[Problem]:
    where = f"completion of {argument!r}"
    prompt, template = catalog.prompts.find(name), catalog.templates.find(name)
    if prompt is None and template is None:
        return [Problem(where, f"unknown prompt or resource template {name!r}")]
    known = prompt.arguments if prompt is not None else template.arguments if template is not None else ()
    if argument in known:
        return []
    return [Problem(where, f"{name!r} has no such argument; its arguments are {', '.join(known) or 'none'}")]
