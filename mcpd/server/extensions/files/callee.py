"""`FileCallee` replaces the function of a tool with files, which it fetches before the call and removes after it."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Raw, Struct, structs
from msgspec.json import Decoder, encode

from mcpd.errors import RegistrationError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.schemas import Schema
from mcpd.protocol.types.base import Meta
from mcpd.protocol.types.features import Tool
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.peer import questions_of
from mcpd.server.extensions.builtin import FILE_PARAMS, FILES
from mcpd.server.functions.results import members_of
from mcpd.server.functions.threads import run_in_thread
from . import wire
from .arriving import Arrival, Parameter, read_items, refuse_state
from .extension import FilesExtension
from .file import Accept, File
from .settings import RETURNED as RETURNED

if TYPE_CHECKING:
    from mcpd.server.functions.signature import Callee
    from mcpd.server.registry.rules import Condition

_decode_members = Decoder(dict[str, Raw]).decode
_decode_any = Decoder().decode


class FileTool(Struct):
    """The part of the extension in one tool: how clients with the extension see the schema."""

    callee: FileCallee
    returns_files: bool
    condition: Condition | None = None
    is_required: bool = False

    def meta(self, active: object) -> Mapping[str, Any]:
        """Return no `_meta`."""
        return {}

    def listed(self, tool: Tool) -> Tool:
        """Return the tool as clients with the extension see it (FIL-01)."""
        return structs.replace(tool, input_schema=self.callee.schema_for(has_extension=True))


def file_tool(bound: Callee, name: str, where: str, need: Callable[[str], Any]) -> FileTool | None:
    """Return the part of the extension in a tool with files; None if its signature `bound` has none.

    Raises RegistrationError.
    """
    parameters = [found for field in structs.fields(bound.arguments) if (found := _parameter(field, where))]
    returns_files = any(map(_is_file, _leaves(bound.returns)))
    if not parameters and not returns_files:
        return None
    return FileTool(FileCallee(bound, name, parameters, need(FILES)), returns_files)


def _parameter(field: structs.FieldInfo, where: str) -> Parameter | None:
    hint, accept = field.type, Accept()
    if not any(map(_is_file, _leaves(hint))):
        return None
    found = [item for item in _metadata(hint) if isinstance(item, Accept)]
    if len(found) > 1:
        raise RegistrationError(f"{where}, parameter {field.encode_name!r}: it has two Accept")
    accept = found[0] if found else accept
    kinds = [kind for kind in members_of(hint) if kind is not type(None)]
    if len(kinds) == 1:
        if _is_file(kinds[0]):
            return Parameter(field.encode_name, accept, False)
        items = [member for item in typing.get_args(kinds[0]) for member in members_of(item)]
        if typing.get_origin(kinds[0]) is list and len(items) == 1 and _is_file(items[0]):
            return Parameter(field.encode_name, accept, True)
    raise RegistrationError(
        f"{where}, parameter {field.encode_name!r}: write File, list[File] or File | None; no other type has files"
    )


def _is_file(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, File)


def _leaves(hint: Any) -> list[Any]:
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated:
        parts = parts[:1]
    return [leaf for part in parts for leaf in _leaves(part)] if parts else [hint]


def _metadata(hint: Any) -> list[Any]:
    own = list(hint.__metadata__) if typing.get_origin(hint) is Annotated else []
    parts = typing.get_args(hint)
    return own + [item for part in (parts[:1] if own else parts) for item in _metadata(part)]


class FileCallee:
    """A function with files; used like the `Callee` that it wraps."""

    is_async = True

    def __init__(self, inner: Callee, tool: str, parameters: Sequence[Parameter], extension: FilesExtension) -> None:
        self._inner = inner
        self._tool = tool
        self.files = tuple(parameters)
        self._extension = extension
        self._schemas: dict[bool, Schema] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def hints(self, meta: Meta) -> Meta:
        """Return the tool's `_meta` with the parameters that ChatGPT and Codex fill in."""
        return {FILE_PARAMS: [parameter.name for parameter in self.files], **(meta or {})} if self.files else meta

    # -- schemas -----------------------------------------------------------------------------

    @property
    def input_schema(self) -> Schema:
        """The schema for clients without the extension, which write a string."""
        return self.schema_for(has_extension=False)

    def schema_for(self, *, has_extension: bool) -> Schema:
        """Return the JSON Schema of the arguments."""
        if has_extension not in self._schemas:
            schema = deepcopy(self._inner.input_schema)
            for parameter in self.files:
                self._describe(schema["properties"][parameter.name], parameter, has_extension=has_extension)
            self._schemas[has_extension] = schema
        return self._schemas[has_extension]

    def _describe(self, schema: Schema, parameter: Parameter, *, has_extension: bool) -> None:
        extension = self._extension
        words = [schema.get("description", "").rstrip()]
        if has_extension:
            file = wire.file_schema(parameter.accept, extension.limits.max_bytes)
            whole = {"type": "array", "items": file} if parameter.is_list else file
            null = [{"type": "null"}] if '"null"' in encode(schema).decode() else []
            kept = {key: schema[key] for key in ("title", "default", "minItems", "maxItems") if key in schema}
            schema.clear()
            schema.update({"anyOf": [whole, *null]} if null else whole, **kept)
        else:
            words.append(f"{'Each is' if parameter.is_list else 'Write'} {extension.way_for(is_local=None)}.")
        if parameter.accept.types:
            words.append(f"Accepted: {', '.join(parameter.accept.types)}.")
        if any(words):
            schema["description"] = " ".join(filter(None, words))

    # -- calls -------------------------------------------------------------------------------

    async def call(self, raw: Raw | bytes, exchange: Exchange) -> Any:
        """Fetch the files, call the function, and remove them."""
        inner = self._inner
        refuse_state(exchange)
        arrival = Arrival(self._extension, exchange, self._tool, in_thread=not inner.is_async)
        is_over = True
        try:
            raw = await self._with_handles(raw, arrival)
            required = arrival.required()
            if required is not None:
                is_over = False  # what has arrived is needed again
                return required
            if inner.is_async:
                value = await inner.call(raw, exchange)
            else:
                value = await run_in_thread(inner.call, raw, exchange, exchange=exchange)
            return await self._written(value, arrival.owner)
        except BaseException as error:
            is_over = not isinstance(questions_of(error), dict)
            raise
        finally:
            await arrival.end(is_over=is_over)

    async def _with_handles(self, raw: Raw | bytes, arrival: Arrival) -> Raw:
        try:
            members = _decode_members(bytes(raw) or b"{}")
        except MALFORMED:
            # The function's own error names what is wrong. No handle is valid, so no file is reached.
            return Raw(bytes(raw))
        for parameter in self.files:
            given = members.get(parameter.name)
            if given is None or bytes(given) == b"null":
                continue
            handles = [await arrival.handle_for(item, parameter) for item in read_items(_decode_any(given), parameter)]
            members[parameter.name] = Raw(encode(handles if parameter.is_list else handles[0]))
        return Raw(encode(members))

    async def _written(self, value: Any, owner: str) -> Any:
        # Return the function's value with content blocks in place of files (FIL-13).
        if isinstance(value, File):
            return await self._extension.block_of(value, owner)
        if isinstance(value, (list, tuple)) and any(isinstance(item, File) for item in value):
            return [await self._extension.block_of(item, owner) if isinstance(item, File) else item for item in value]
        return value
