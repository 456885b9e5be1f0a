"""Schemas given as JSON, checked at registration and enforced by jsonschema-rs (extra `mcpd-server[schema]`).

JSON Schema 2020-12 unless `$schema` names another draft. A reference out of the document is refused; nothing is fetched
(S26-024). Depth and size are bounded. Spec: 2026-07-28 basic/index, JSON Schema usage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from msgspec import Raw
from msgspec.json import encode

from mcpd.errors import ArgumentsError, RegistrationError
from mcpd.protocol.jsonrpc import read_object
from mcpd.protocol.schemas import Schema
from .annotations import Function, Values
from .arguments import coerce

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 100

_DIALECTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
)
MOST_LEVELS = 250
_MANY = 20
_LONG = 400


class JsonSchema:
    """One schema, ready to check values. `what` names it in errors, e.g. "tool 'x', input schema".

    `is_ours=False` is for schemas of strangers: their patterns are matched in linear time, without lookahead.

    Raises RegistrationError for a schema that is invalid, names an unknown dialect, refers out of itself, or is larger
    than 1 MiB or deeper than 100 levels.
    """

    def __init__(self, schema: Mapping[str, Any], what: str, *, is_ours: bool = True) -> None:
        self.schema = dict(schema)
        try:
            import jsonschema_rs  # an extra
        except ImportError:
            raise RegistrationError(f"{what}: schemas given as JSON need: pip install 'mcpd-server[schema]'") from None
        self._check(what)
        try:
            jsonschema_rs.meta.validate(self.schema)
            patterns = None if is_ours else jsonschema_rs.RegexOptions(size_limit=MAX_BYTES)
            self._validator = jsonschema_rs.validator_for(
                self.schema, retriever=_refuse_to_fetch, pattern_options=patterns
            )
        except (ValueError, TypeError, jsonschema_rs.ReferencingError) as error:
            message = getattr(error, "message", None) or str(error).partition("\n")[0]
            raise RegistrationError(f"{what}: {message}") from None

    def _check(self, what: str) -> None:
        dialect = self.schema.get("$schema", _DIALECTS[0])
        if not isinstance(dialect, str) or dialect.rstrip("#") not in _DIALECTS:
            raise RegistrationError(
                f"{what}: the dialect {dialect!r} is not supported; leave $schema out for 2020-12, or name one of "
                f"{', '.join(_DIALECTS)}"
            )

        # First, because it ends for schemas on which encoding would not.
        references = list(_references(self.schema, what, 0, count()))
        try:
            size = len(encode(self.schema))
        except (TypeError, RecursionError) as error:
            raise RegistrationError(f"{what}: not JSON: {error}") from None
        if size > MAX_BYTES:
            raise RegistrationError(f"{what}: {size} bytes, more than {MAX_BYTES}")

        for reference in references:
            if not reference.startswith("#"):
                raise RegistrationError(
                    f"{what}: $ref {reference!r} leads out of the schema; nothing is fetched, so put it into $defs"
                )

    def problems(self, value: Any, *, is_flat: bool = False) -> list[str]:
        """Return up to 20 lines, one for each problem of a value; [] if it fits. Values with too many levels do not
        fit.

        `is_flat` means that the number of levels has been checked.
        """
        if not is_flat and not self.can_check(value):
            return [f"nested deeper than {MOST_LEVELS}"]
        texts = []
        for error in self._validator.iter_errors(value):
            path = ".".join(map(str, error.instance_path))
            message = error.message
            if len(message) > _LONG:  # it contains the value
                message = f"{message[: _LONG // 2]} … {message[-_LONG // 2 :]}"
            texts.append(f"{path}: {message}" if path else message)
            if len(texts) == _MANY:
                break
        return texts

    def read_arguments(self, raw: bytes | Raw) -> Values:
        """Return arguments that fit, with small mistakes of models corrected. Raises ArgumentsError otherwise, and
        InvalidParams if they are not an object.
        """
        arguments = read_object(raw, "arguments")
        written = bytes(raw)
        # Each bracket is at most one level, and most arguments have few.
        is_flat = written.count(b"{") + written.count(b"[") < MOST_LEVELS
        problems = self.problems(arguments, is_flat=is_flat)
        if problems and (is_flat or self.can_check(arguments)):
            repaired = coerce(arguments, self.schema)
            if repaired is not arguments:
                # Levels are counted again, because strings parsed as JSON may have added some.
                arguments, problems = repaired, self.problems(repaired)
        if problems:
            raise ArgumentsError("\n".join(problems))
        return arguments

    @staticmethod
    def can_check(value: Any) -> bool:
        """Return whether a value has few enough levels to be checked.

        The library follows recursive schemas without a limit, so deep JSON, which Python 3.13 and later decode, could
        overflow the stack and end the process. It also writes at most 255 levels.
        """
        level = [value]
        for _ in range(MOST_LEVELS):
            holders = [one for one in level if isinstance(one, (dict, list, tuple))]
            level = [part for one in holders for part in (one.values() if isinstance(one, dict) else one)]
            if not level:
                return True
        return False


def _refuse_to_fetch(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")


def _references(node: Any, what: str, depth: int, values: Iterator[int]) -> Iterator[str]:
    # Yield the references in a schema. They are counted, because shared parts may make it endless when written out.
    if depth > MAX_DEPTH:
        raise RegistrationError(f"{what}: nested deeper than {MAX_DEPTH}")
    if next(values) > MAX_BYTES // 2:  # each value takes at least a byte and a comma
        raise RegistrationError(f"{what}: more than {MAX_BYTES} bytes, if what it has in several places is written out")

    if isinstance(node, Mapping):
        for key, value in node.items():
            if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str):
                yield value
            else:
                yield from _references(value, what, depth + 1, values)
    elif isinstance(node, list | tuple):
        for item in node:
            yield from _references(item, what, depth + 1, values)


class SchemaCallee:
    """A function with a JSON Schema for its arguments: it takes them as one dict, and optionally the context.

    Used like a `signature.Callee`.
    """

    def __init__(self, function: Function, schema: Mapping[str, Any], inner: Any, what: str) -> None:
        if schema.get("type") != "object":
            raise RegistrationError(f'{what}: an input schema has "type": "object" at its root')

        takes = list(inner.arguments.__struct_fields__)
        if len(takes) != 1:
            raise RegistrationError(f"{what}: with input_schema= the function takes one dict of arguments, not {takes}")

        self.function = function
        self.name: str = inner.name
        self.description: str = inner.description
        self.is_async: bool = inner.is_async
        self.input_schema = dict(schema)
        self.output_schema: Schema | None = inner.output_schema
        self.returns = inner.returns
        self.output_type = inner.output_type
        self.arguments = inner.arguments
        self.uses_request: bool = inner.uses_request
        self.parameters = ()

        self._schema = JsonSchema(schema, what)
        self._parameter = takes[0]
        self._inner = inner

    def call(self, raw: bytes | Raw, context: Any = None) -> Any:
        """Validate the arguments and call the function. Raises ArgumentsError, or InvalidParams if they are not an
        object.
        """
        return self._inner.call_values({self._parameter: self._schema.read_arguments(raw)}, context)

    def check(self, raw: bytes | Raw) -> None:
        """Validate the arguments, as `call` does."""
        self._schema.read_arguments(raw)

    def call_strings(self, values: Mapping[str, str | None], context: Any = None) -> Any:
        """As `call`, with arguments given as strings."""
        return self.call(encode(dict(values)), context)
