"""Adds the operations of an OpenAPI document to a server as tools.

An API receives the arguments of a call, the headers and query parameters that the operator has set, and the headers of
the caller that the operator has named. The operator's values are removed from responses.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Raw
from msgspec.structs import replace
from yarl import URL

from mcpd.auth.fetch import FetchError, Limits, fetch, reach_from
from mcpd.client.http.options import checked
from mcpd.errors import ConfigurationError, McpdError, ToolError
from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import CallToolResult
from mcpd.server import Server
from mcpd.server.context.exchange import Exchange
from mcpd.server.folder_files import is_below
from mcpd.server.registry.entries import Entries
from mcpd.server.registry.tools import FunctionTool, failed
from mcpd.sources.tables import OpenApiTable
from .api import Api, checked_base
from .document import MAX_BYTES, Document, parsed, read_others
from .operations import NOT_FORWARDED, Operation, operations_of
from .requests import request_for
from .responses import result_of

log = logging.getLogger("mcpd")

# Shorter values may occur in a response by chance.
_LEAST_SECRET = 6


def add(server: Server, document: str | os.PathLike[str] | Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    """Add the operations of a document to a server, and return the names of the tools. See `Server.add_openapi`."""
    return ServedDocument(server, document, _read(document), OpenApiTable(**options)).names


def add_table(server: Server, root: str, name: str, table: OpenApiTable) -> ServedDocument:
    """Add `[openapi.NAME]` of the mcpd.toml in the folder `root`. Raises ConfigurationError."""
    try:
        if not table.document or not re.fullmatch("[a-z][a-z0-9-]{0,30}", name):
            raise ConfigurationError("set document, and use a NAME of up to 31 small letters, digits and -")
        document = table.document if "://" in table.document else os.path.join(root, table.document)
        token_file = table.token_file and os.path.join(root, os.path.expanduser(table.token_file))
        prefix = f"{name}_" if table.prefix is None else table.prefix
        table = replace(table, prefix=prefix, token_file=token_file)
        return ServedDocument(server, document, _read(document), table)
    except ConfigurationError as error:
        raise ConfigurationError(f"[openapi.{name}]: {error}") from None


def serve(document: str, options: Mapping[str, Any]) -> ServedDocument:
    """Make a server for one document. Raises ConfigurationError."""
    found = _read(document)
    title = found.info.text("title")
    name = re.sub(r"[^A-Za-z0-9]+", "-", title).strip("-").lower() or "openapi"
    server = Server(name, version=found.info.text("version") or "0.0.0", title=title or None)
    return ServedDocument(server, document, found, OpenApiTable(**options))


def _read(document: str | os.PathLike[str] | Mapping[str, Any]) -> Document:
    if isinstance(document, Mapping):
        return Document(dict(document), "the document")
    return _Files(os.fspath(document).removeprefix("openapi:")).document()


class _Files:
    # Reads the files of one document, `MAX_BYTES` in all.
    def __init__(self, where: str) -> None:
        self._where = where
        self._is_url = where.startswith(("http://", "https://"))
        self._folder = os.path.realpath(os.path.dirname(where))
        self._left = MAX_BYTES
        self.paths: list[str] = []

    def document(self) -> Document:
        place = self._where if self._is_url else quote(os.path.basename(self._where))
        content = self._parsed(self._where)
        others = read_others(content, place, self._other)
        url = self._where if self._is_url else ""
        return Document(content, self._where, url, place=place, others=others, files=self.paths)

    def _other(self, place: str) -> Any:
        if self._is_url:
            if URL(place).origin() != URL(self._where).origin():
                raise ConfigurationError(f"{place} is on another server")
            return self._parsed(place)
        path = os.path.join(self._folder, unquote(place))
        if not is_below(path, self._folder):
            raise ConfigurationError(f"{place} is not below the folder of the document")
        return self._parsed(path)

    def _parsed(self, where: str) -> Any:
        try:
            if self._is_url:
                data = asyncio.run(_fetched(where))
            else:
                self.paths.append(os.path.abspath(where))
                if os.path.exists(where) and not os.path.isfile(where):
                    raise OSError("it is not a file")
                with open(where, "rb") as file:
                    data = file.read(self._left + 1)
        except (OSError, FetchError, RuntimeError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"the OpenAPI document {where} cannot be read: {why}") from None

        self._left -= len(data)
        if self._left < 0:
            raise ConfigurationError(f"{where} is larger than {MAX_BYTES:,} bytes")
        return parsed(data, where)


async def _fetched(url: str) -> bytes:
    response = await fetch(url, reach=await reach_from(url), limits=Limits(max_bytes=MAX_BYTES, seconds=30.0))
    if response.status != 200:
        raise FetchError("the document", url, f"it answers {response.status}", status=response.status)
    return response.body


def _expanded(texts: Mapping[str, str]) -> dict[str, str]:
    # Replace `${NAME}` and `${NAME:-default}`. Raises ConfigurationError for a variable that is not set.
    def value(found: re.Match[str]) -> str:
        there = os.environ.get(found[1]) or found[2]
        if there is None:
            raise ConfigurationError(f"openapi: the environment variable {found[1]} is not set")
        return there

    return {name: re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", value, text) for name, text in texts.items()}


class ServedDocument:
    """A document whose operations are tools of a server; implements `Watched` of `sources.watch`."""

    def __init__(self, server: Server, place: Any, document: Document, table: OpenApiTable) -> None:
        self.server = server
        self.name = document.where
        self.names: list[str] = []
        """The names of the tools."""
        self._place = place
        self._table = table
        self._api: Api | None = None
        self._files: Sequence[str] = ()
        self._offer(document)

    def folders(self) -> Sequence[str]:
        """The folders of the document's files."""
        return list(dict.fromkeys(map(os.path.dirname, self._files)))

    def files(self) -> Sequence[str]:
        """The files of the document."""
        return self._files

    def concerns(self, path: str) -> bool:
        """Whether it is a file of the document."""
        return path in self._files

    def refresh(self, paths: set[str]) -> None:
        """Read the document again. Raises ConfigurationError, and changes nothing, if it cannot be served."""
        if self._files:
            self._offer(_read(self._place))

    def _offer(self, document: Document) -> None:
        table, where = self._table, document.where
        for name in table.forward_headers:
            if NOT_FORWARDED.fullmatch(name):
                raise ConfigurationError(f"openapi, forward_headers: {printable(name)} is never passed on")
        base = table.base or document.server()
        if not base:
            raise ConfigurationError(f"{where} names no URL of a server: pass --base URL, or base= in Python")
        base = checked_base(_expanded({"base": base})["base"] if table.base else base)
        headers = checked(_expanded(table.headers), "openapi, headers")
        is_named = table.base is not None or bool(document.url and URL(document.url).origin() == URL(base).origin())
        query, security = _expanded(table.query), _expanded(table.security)
        table = replace(table, base=base, headers=headers, query=query, security=security)
        operations, problems = operations_of(document, table, base)
        if self._api is None or self._api.base != base:
            self._api = Api(base, document.info.text("title"), table.timeout, table.max_bytes, is_named=is_named)
            self.server.at_end(self._api.aclose)
        caller = _Caller(self._api, table)
        tools = [_tool(self.server, each, caller) for each in operations]
        self.server.replace(f"openapi {table.prefix or self.name}", Entries(tools=tools, problems=problems))
        self.names, self._files = [tool.key for tool in tools], document.files


class _Caller:
    # Calls operations of one API.
    def __init__(self, api: Api, table: OpenApiTable) -> None:
        self._api = api
        self._table = table
        self._forwarded = {name.lower() for name in table.forward_headers}
        self._forwarded |= {"authorization"} if table.forward_authorization else set()
        values = (*table.headers.values(), *table.query.values(), *table.security.values())
        # `Bearer TOKEN` has two parts, and an API may repeat the second one.
        self._secrets = {part for value in values for part in (value, value.rpartition(" ")[2])}

    async def call(self, operation: Operation, raw: Raw, exchange: Exchange) -> CallToolResult:
        """Call an operation with arguments as received."""
        target, own, data = request_for(operation, operation.check.read_arguments(raw), self._table.query)
        headers = {**self._of_caller(exchange), **own, **self._table.headers}
        secrets = self._secrets | {part for each in operation.credentials for part in each.value.split(" ")}
        if self._table.token_file is not None:
            token = self._token(self._table.token_file)
            headers["Authorization"] = f"Bearer {token}"
            secrets = secrets | {token}

        try:
            response = await self._api.request(operation.method.upper(), target, headers, data)
        except McpdError as error:
            return failed(f"{operation.method.upper()} {operation.path}: {error}")

        body = response.body
        for secret in secrets:
            body = body.replace(secret.encode(), b"***") if len(secret) >= _LEAST_SECRET else body
        return result_of(operation, replace(response, body=body))

    def _of_caller(self, exchange: Exchange) -> dict[str, str]:
        if not self._forwarded:
            return {}
        fields = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in exchange.origin.fields)
        return {name: value for name, value in fields if name in self._forwarded}

    def _token(self, path: str | os.PathLike[str]) -> str:
        # The file is read for each request: it may be replaced at any time.
        try:
            with open(os.path.expanduser(path), encoding="ascii") as file:
                token = file.read(65_536).strip()
        except (OSError, ValueError) as error:
            token = ""
            log.error("openapi: the token file %s cannot be read: %s", printable(path), printable(error))
        if not token or not token.isprintable():
            raise ToolError("the token file of the API cannot be used; details are in the server's log")
        return token


class _OperationCallee:
    # An operation as the callee of a `FunctionTool`.
    is_async = True
    parameters = ()
    returns = output_type = None
    description = ""

    def __init__(self, operation: Operation, caller: _Caller) -> None:
        self.input_schema, self.output_schema = operation.tool.input_schema, operation.tool.output_schema
        self.function = self.call = partial(caller.call, operation)


def _tool(server: Server, operation: Operation, caller: _Caller) -> FunctionTool:
    callee: Any = _OperationCallee(operation, caller)
    entry = FunctionTool(operation.tool, callee, check_output=lambda content: [])
    entry.tags = frozenset(operation.tags)
    entry.wraps_for = frozenset(each.id for each in server.extensions.values() if each.wraps_values)
    entry.active_extensions = server.catalog.active_extensions
    return entry
