"""Describes the tool of each operation of a document: its name, arguments, texts and hints.

Names do not depend on which operations are served. Parts that cannot be used are reported. An operation is left out if
it needs such a part.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.json import encode

from mcpd.client.http.options import checked
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.protocol.schemas import Schema
from mcpd.protocol.types.features import Tool, ToolAnnotations
from mcpd.server.functions.json_schema import JsonSchema
from mcpd.server.metadata import hinted, tagged
from mcpd.server.registry.entries import Problem
from mcpd.sources.tables import OpenApiTable
from .document import Document, Node, Unusable, resolved
from .schemas import SchemaWriter

Encoding: TypeAlias = Literal["json", "multipart", "form", "text", "binary"]

_ORDER: Final[tuple[Encoding, ...]] = ("json", "multipart", "form", "text", "binary")
_MOST_NAME: Final = 64
_MOST_OPERATIONS: Final = 5000
_MOST_DESCRIPTION: Final = 2000
_MOST_OUTPUT_BYTES: Final = 8192
# By the place of a parameter, the first one is the default.
_STYLES: Final[dict[str, tuple[str, ...]]] = {
    "path": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
NOT_FORWARDED: Final = re.compile(
    r"(?i)accept(-encoding)?|authorization|connection|content-.*|cookie|expect|forwarded|host|keep-alive|mcp-.*|origin|"
    r"proxy-.*|te|trailer|transfer-encoding|upgrade|via|x-forwarded-.*|x-real-ip"
)
"""Headers that describe the connection or the caller. They are neither arguments nor passed on."""
_FILE: Final = {
    "type": "string",
    "description": "A data: URI such as data:image/png;name=a.png;base64,iVBORw0…, or the text of the file.",
}


class Parameter(Struct, frozen=True):
    """One parameter of an operation, and the argument that sets it."""

    argument: str
    name: str
    place: str
    style: str
    is_exploded: bool
    is_json: bool


class Body(Struct, frozen=True):
    """The body of a request, and the argument that sets it. `files` are the members of a form that are files."""

    argument: str
    media_type: str
    encoding: Encoding
    files: frozenset[str]


class Credential(Struct, frozen=True):
    """What a security scheme adds to a request, in a header, the query or a cookie."""

    place: str
    name: str
    value: str


class Operation(Struct, frozen=True):
    """One operation, and the tool that calls it."""

    method: str
    path: str
    tags: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    body: Body | None
    tool: Tool
    check: JsonSchema
    output_check: JsonSchema | None
    credentials: tuple[Credential, ...] = ()


def _hints(method: str) -> ToolAnnotations:
    if method in ("get", "head", "options", "query"):
        return ToolAnnotations(read_only_hint=True, open_world_hint=True)
    is_destructive, is_idempotent = None if method == "post" else True, method in ("put", "delete")
    return ToolAnnotations(
        read_only_hint=False, destructive_hint=is_destructive, idempotent_hint=is_idempotent, open_world_hint=True
    )


def _credentials(document: Document, table: OpenApiTable) -> dict[str, Credential]:
    # By the name of the scheme. Raises ConfigurationError.
    schemes, found = document.security_schemes, {}
    for name, secret in table.security.items():
        if name not in schemes:
            raise ConfigurationError(
                f"openapi, security: {document.where} has no scheme {printable(name, 60)}; it has: "
                f"{printable(', '.join(schemes), 300) or 'none'}"
            )
        scheme = schemes[name]
        kind, place = scheme.text("type"), scheme.text("in")
        if kind == "apiKey" and place in ("header", "query", "cookie") and (key := scheme.text("name")):
            found[name] = Credential(place, key, secret)
        elif kind == "http" and scheme.text("scheme").lower() == "basic":
            found[name] = Credential("header", "Authorization", f"Basic {b64encode(secret.encode()).decode()}")
        elif kind in ("oauth2", "openIdConnect") or (kind == "http" and scheme.text("scheme").lower() == "bearer"):
            found[name] = Credential("header", "Authorization", f"Bearer {secret}")
        else:
            what = f"{kind} {scheme.text('scheme')}".strip()
            raise ConfigurationError(f"openapi, security: the scheme {name} is {printable(what, 60)}; use headers")
        if found[name].place == "header":
            checked({found[name].name: found[name].value}, f"openapi, security, {name}")

    return found


def operations_of(document: Document, table: OpenApiTable, base: str) -> tuple[list[Operation], list[Problem]]:
    """Return the operations that can be tools, and the problems of the others. Raises ConfigurationError."""
    known = _credentials(document, table)
    found: list[Operation] = []
    problems: list[Problem] = []
    names: set[str] = set()
    used: set[str] = set()
    for method, path, node, shared in document.operations():
        where = printable(f"{method.upper()} {path}", 200)
        given = node.text("operationId")
        name = _unique_name(method, path, given, table, names)
        listed = node.content.get("tags")
        tags = tuple(filter(None, map(str, listed if isinstance(listed, list) else ())))
        hits = {each for each in (*table.allow, *table.deny) if _matches(each, method, path, tags, (name, given))}
        used |= hits
        if (table.allow and hits.isdisjoint(table.allow)) or not hits.isdisjoint(table.deny):
            continue
        if len(found) == _MOST_OPERATIONS:
            problems.append(Problem(document.where, f"only the first {_MOST_OPERATIONS:,} operations are served"))
            break
        reader = _Reader(document, node, method, path, table, known)
        try:
            if isinstance(shared, Unusable):
                raise shared
            is_pinned = any(_matches(each, method, path, tags, (name, given)) for each in table.always_load)
            found.append(reader.operation(name, tags, shared, base, is_pinned=is_pinned))
        except Unusable as error:
            problems.append(Problem(where, f"{error}; it is left out"))
        problems += [Problem(where, text, is_error=False) for text in reader.warnings]

    unused = dict.fromkeys(each for each in (*table.allow, *table.deny) if each not in used)
    problems += [
        Problem(document.where, f"the pattern {each!r} matches no operation", is_error=False) for each in unused
    ]
    return found, problems


def _matches(pattern: str, method: str, path: str, tags: Sequence[str], names: Sequence[str]) -> bool:
    if pattern.startswith("tag:"):
        return any(fnmatchcase(tag, pattern[4:].strip()) for tag in tags)
    first, _, rest = pattern.partition(" ")
    if rest:
        return any(fnmatchcase(method, one.lower()) for one in first.split(",")) and fnmatchcase(path, rest.strip())
    if pattern.startswith("/"):
        return fnmatchcase(path, pattern)
    return method.upper() == pattern or any(fnmatchcase(name, pattern) for name in names if name)


def _unique_name(method: str, path: str, given: str, table: OpenApiTable, names: set[str]) -> str:
    generated = re.sub(r"\W", "_", path) + f"_{method}"  # FastAPI adds the path to the name of the function
    name = _plain(given.removesuffix(generated) or given) or _plain(f"{method}{path.replace('{', 'by_')}")
    name = table.rename.get(given) or table.rename.get(name) or name
    most = _MOST_NAME - len(table.prefix or "")
    if len(name) > most:
        name = f"{name[: most - 9]}_{sha256(f'{method} {path}'.encode()).hexdigest()[:8]}"
    unique, number = name, 1
    while unique in names:
        number += 1
        unique = f"{name[: most - len(str(number)) - 1]}_{number}"
    names.add(unique)
    return unique


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "_", text).strip("_-")


class _Reader:
    # Reads one operation. `warnings` are about parts that are left out.
    def __init__(
        self,
        document: Document,
        node: Node,
        method: str,
        path: str,
        table: OpenApiTable,
        known: Mapping[str, Credential],
    ) -> None:
        self._credentials = tuple(_needed(node.content.get("security", document.root.content.get("security")), known))
        self._document = document
        self._node = node
        self._method = method
        self._path = path
        self._table = table
        self._writer = SchemaWriter("input", document)
        self._properties: dict[str, Schema] = {}
        self._required: list[str] = []
        self.warnings: list[str] = []

    def operation(
        self, name: str, tags: tuple[str, ...], shared: Sequence[Node], base: str, *, is_pinned: bool
    ) -> Operation:
        server = self._document.server(self._node.content)
        if server not in ("", base, self._document.server()):
            raise Unusable(f"its server is {printable(server, 100)}; add the document again with that base URL")
        if self._method == "trace":
            raise Unusable("TRACE cannot be a tool")
        parameters, body = tuple(self._parameters(shared)), self._body()
        arguments: Schema = {"type": "object", "properties": self._properties, "required": self._required}
        schema, check = self._writer.finish({**arguments, "additionalProperties": False})
        output = (self._table.output_schemas and self._output()) or (None, None)
        title, text = self._node.text("summary"), self._node.text("description")
        is_old = self._node.content.get("deprecated") is True
        words = ("" if text.startswith(title) else title, "Deprecated." if is_old else "", text)
        whole = "\n\n".join(filter(None, words)) or f"{self._method.upper()} {self._path}"
        if len(whole) > _MOST_DESCRIPTION:
            whole = f"{whole[:_MOST_DESCRIPTION].rpartition(' ')[0]} …"
        tool = Tool(
            name=f"{self._table.prefix or ''}{name}",
            title=title or None,
            description=whole,
            annotations=_hints(self._method),
            input_schema=schema,
            output_schema=output[0],
            meta=tagged(hinted(None, {"always_load": is_pinned}, name), {"tags": tags}, name),
        )
        return Operation(self._method, self._path, tags, parameters, body, tool, check, output[1], self._credentials)

    def _parameters(self, shared: Sequence[Node]) -> Iterator[Parameter]:
        by_key = {(node.text("name"), node.text("in")): node for node in (*shared, *self._node.items("parameters"))}
        in_path: list[str] = re.findall(r"\{([^{}]*)\}", self._path)
        if missing := [name for name in in_path if (name, "path") not in by_key]:
            raise Unusable(f"the document does not describe {printable(missing[0], 60)}, which is in the path")
        table = self._table
        fixed = {name.lower() for name in (*table.headers, *table.query, *table.forward_headers)}
        fixed |= {each.name.lower() for each in self._credentials}
        for (name, place), node in by_key.items():
            if place == "path":
                if name in in_path:
                    yield self._parameter(name, place, node)
            elif name.lower() not in fixed and not (place == "header" and NOT_FORWARDED.fullmatch(name)):
                try:
                    yield self._parameter(name, place, node)
                except Unusable as error:
                    if node.content.get("required") is True:
                        raise
                    self.warnings.append(f"{error}; it is left out")

    def _parameter(self, name: str, place: str, node: Node) -> Parameter:
        styles = _STYLES.get(place, ())
        style = str(node.content.get("style") or next(iter(styles), ""))
        schema, given = node.content.get("schema", {"type": "string"}), node.content.get("content")
        content: Mapping[str, Any] = given if isinstance(given, dict) else {}
        is_json = len(content) == 1
        if is_json:
            ((media_type, holder),) = content.items()
            is_usable = encoding_of(str(media_type)) == "json" and isinstance(holder, dict) and place in _STYLES
            schema = holder.get("schema", {}) if is_usable else {}
        else:
            is_usable = style in styles

        if not is_usable or (place in ("header", "cookie") and not re.fullmatch(r"[!#$%&'*+.^_`|~\w-]+", name, re.A)):
            raise Unusable(
                f"the parameter {printable(name, 60)} in {place!r} has an unsupported name, style or content"
            )

        converted = self._writer.convert(schema, node.resolver)
        if text := node.text("description"):
            converted = {**converted, "description": text}
        argument = self._argument(name, place, converted, is_required=place == "path" or _is_required(node))
        explode = node.content.get("explode")
        is_exploded = explode if isinstance(explode, bool) else style in ("form", "deepObject")
        return Parameter(argument, name, place, style, is_exploded, is_json)

    def _argument(self, name: str, place: str, schema: Schema, *, is_required: bool) -> str:
        # Add an argument with a unique name that model vendors accept.
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_") or place
        argument, number = plain[:_MOST_NAME], 0
        while argument in self._properties:
            suffix = f"_{place}{number or ''}"
            argument, number = f"{plain[: _MOST_NAME - len(suffix)]}{suffix}", number + 1
        self._properties[argument] = schema
        self._required += [argument] if is_required else []
        return argument

    def _body(self) -> Body | None:
        node = self._node.get("requestBody")
        content = node.content.get("content")
        if not isinstance(content, dict) or not content:
            return None
        media_type = min(map(str, content), key=lambda kind: _ORDER.index(encoding_of(kind)))
        encoding = encoding_of(media_type)
        holder = content.get(media_type)
        form = Node(holder if isinstance(holder, dict) else {}, node.resolver).get("schema")
        files = frozenset[str]()
        if encoding == "multipart" and isinstance(properties := form.content.get("properties"), dict):
            kinds = {name: _file_schema(each, form) for name, each in properties.items()}
            files = frozenset(name for name, kind in kinds.items() if kind is not None)
            form = Node(
                {**form.content, "properties": {n: kinds[n] or each for n, each in properties.items()}}, form.resolver
            )

        plain = {"binary": _FILE, "text": {"type": "string"}}.get(encoding)
        schema = {**(plain or self._writer.convert(form.content, form.resolver))}
        if (text := node.text("description")) and not plain:
            schema["description"] = text
        return Body(
            self._argument("body", "request", schema, is_required=_is_required(node)), media_type, encoding, files
        )

    def _output(self) -> tuple[Schema, JsonSchema] | None:
        # Return the schema of the result if the operation has one form of success, and that is JSON.
        given = self._node.content.get("responses")
        responses = {str(code): each for code, each in given.items()} if isinstance(given, dict) else {}
        codes = [code for code in responses if code[:1] == "2"]
        try:
            node = Node(responses, self._node.resolver).get(codes[0]) if len(codes) == 1 else self._node
            content = node.get("content").content
            if [encoding_of(str(kind)) for kind in content] != ["json"]:
                return None
            writer = SchemaWriter("output", self._document)
            root = Node(content, node.resolver).get(next(iter(content))).get("schema")
            schema, check = writer.finish(writer.convert(root.content, root.resolver))
            return (schema, check) if schema and len(encode(schema)) <= _MOST_OUTPUT_BYTES else None
        except Unusable:
            return None


def _needed(requirements: Any, known: Mapping[str, Credential]) -> list[Credential]:
    # The credentials of the first requirement for which all are known; a requirement without any needs none.
    for each in requirements if isinstance(requirements, list) else ():
        if isinstance(each, dict) and each and each.keys() <= known.keys():
            return [known[name] for name in each]
    return []


def encoding_of(media_type: str) -> Encoding:
    """Return how content of a media type is written."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind in ("application/json", "*/*") or kind.endswith("+json"):
        return "json"
    if kind in ("multipart/form-data", "application/x-www-form-urlencoded"):
        return "multipart" if kind[0] == "m" else "form"
    is_text = kind.startswith("text/") or kind.endswith(("xml", "json", "yaml", "javascript"))
    return "text" if is_text else "binary"


def _is_required(node: Node) -> bool:
    return node.content.get("required") is True


def _file_schema(schema: Any, form: Node, *, may_be_list: bool = True) -> Mapping[str, Any] | None:
    # Return the schema of a member of a form that is a file, or a list of files; None for others.
    node = resolved(schema if isinstance(schema, dict) else {}, form.resolver)
    content = node.content
    if content.get("type") == "array" and may_be_list:
        one = _file_schema(content.get("items"), node, may_be_list=False)
        return one and {"type": "array", "items": one}
    is_raw = "contentMediaType" in content and "contentEncoding" not in content
    return _FILE if content.get("format") == "binary" or is_raw else None
