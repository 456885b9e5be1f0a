"""Files as arguments: a `Path` for a parameter that takes a file is sent in the best way that the server offers.

A server with the extension `io.modelcontextprotocol/files` gets a description, with the bytes if they are few; it
answers where to put the others. Any other server gets a data URI for a small file. A larger one is uploaded over HTTP,
or named by its path to a server in a process of this machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import os
import shutil
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import PurePath
from typing import Any, TypeAlias
from urllib.parse import quote

from msgspec import Raw, Struct, convert
from msgspec.json import decode, encode
from msgspec.structs import replace

from mcpd.errors import HttpError, LocalProtocolError, ProtocolError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.types.base import ClientCapabilities
from mcpd.protocol.types.features import Tool

EXTENSION = "io.modelcontextprotocol/files"
_MOST_INLINE_BYTES = 256 << 10

Send: TypeAlias = Callable[[str, str, bytes | PurePath], Awaitable[tuple[int, bytes]]]
"""(method, URL, body) -> status and body: a request beside the messages."""


class _Upload(Struct, rename="camel"):
    file_id: str
    url: str = ""
    path: str = ""
    method: str = "PUT"


class _UploadRequired(Struct, rename="camel"):
    result_type: str = ""
    request_state: str = ""
    uploads: list[_Upload] = []


def has_paths(arguments: Any) -> bool:
    """Return whether arguments have a path, or a list of paths."""
    return any(
        isinstance(value, PurePath) or (isinstance(value, list) and any(isinstance(item, PurePath) for item in value))
        for value in arguments.values()
    )


def file_parameters(tool: Tool | None) -> Collection[str]:
    """Return the names of the parameters of a tool that take files."""
    names = None if tool is None else (tool.meta or {}).get("openai/fileParams")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def declared(capabilities: ClientCapabilities) -> ClientCapabilities:
    """Return the capabilities of a client that also uploads files."""
    return replace(capabilities, extensions={**(capabilities.extensions or {}), EXTENSION: {"upload": {}}})


def settings_in(discovered: Raw) -> Mapping[str, Any] | None:
    """Return what a server says of the extension; None if it takes no uploads, or only those of a later draft."""
    try:
        settings = decode(discovered)["capabilities"]["extensions"][EXTENSION]
        return settings if isinstance(settings["upload"], dict) and settings.get("revision") is None else None
    except (KeyError, TypeError, *MALFORMED):
        return None


class FileArguments:
    """The files of one call. `send` is None if HTTP does not reach the server, `settings` without the extension.

    Only a server that `is_local` is told paths, and chooses some. Raises OSError for a file that cannot be read.
    """

    def __init__(
        self,
        tool: Tool | None,
        endpoint: str,
        send: Send | None,
        settings: Mapping[str, Any] | None,
        *,
        is_local: bool,
    ) -> None:
        self._names = file_parameters(tool)
        self._endpoint = endpoint
        self._send = send
        self._is_local = is_local
        self._has_extension = settings is not None
        most = _MOST_INLINE_BYTES if settings is None else settings.get("maxInlineBytes")
        self._most = most if isinstance(most, int) else 0
        self._paths: dict[str, PurePath] = {}

    async def written(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with what the server reads in place of each path.

        Raises LocalProtocolError for a parameter that takes no file, as far as the server says.
        """
        sent = dict(arguments)
        for name, value in arguments.items():
            several = value if isinstance(value, list) else [value]
            if not any(isinstance(item, PurePath) for item in several):
                continue
            if name not in self._names and (self._names or not self._has_extension):
                raise LocalProtocolError(
                    f"{name}: the tool takes no file here; to send the path itself, pass it as a str"
                )
            written = [await self._written(item) if isinstance(item, PurePath) else item for item in several]
            sent[name] = written if several is value else written[0]
        return sent

    async def _written(self, path: PurePath) -> Any:
        size = (await asyncio.to_thread(os.stat, path)).st_size
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        data = await asyncio.to_thread(_read, path) if size <= self._most else b""
        if self._has_extension:
            id = f"file-{len(self._paths) + 1}"
            self._paths[id] = path
            digest = {"algorithm": "sha-256", "value": await asyncio.to_thread(_digest, path)}
            inline = {"data": b64encode(data).decode()} if data else {}
            return {"id": id, "name": path.name, "mimeType": kind, "size": size, "digest": digest, **inline}
        if size <= self._most:
            return f"data:{kind};name={quote(path.name, safe='')};base64,{b64encode(data).decode()}"
        if self._is_local:
            return await asyncio.to_thread(os.path.abspath, path)
        if self._send is None:
            raise LocalProtocolError(f"{path}: a file of more than {self._most:,} bytes needs HTTP or stdio")
        wanted = {"name": path.name, "mimeType": kind, "size": size}
        status, body = await self._send("POST", f"{self._endpoint.rstrip('/')}/files", encode(wanted))
        try:
            ticket: dict[str, str] = decode(body, type=dict[str, str]) if status == 201 else {}
            id, url = ticket["id"], ticket["url"]
        except (KeyError, *MALFORMED):
            raise HttpError(f"{path}: the server takes no upload; it answers {status}", status) from None
        await self._upload("PUT", url, path)
        return id

    async def state_after(self, result: Raw) -> str | None:
        """Upload what a result asks for, and return the state with which to call again; None for any other result."""
        if b'"upload_required"' not in bytes(result):
            return None
        try:
            asked = convert(decode(result), _UploadRequired)
        except MALFORMED:
            return None
        if asked.result_type != "upload_required":
            return None
        for upload in asked.uploads:
            path = self._paths.get(upload.file_id)
            if path is None or bool(upload.url) == bool(upload.path):
                raise ProtocolError(
                    f"The server asks for an upload that this call cannot make: {upload.file_id[:100]!r}"
                )
            if upload.url:
                await self._upload(upload.method, upload.url, path)
            elif self._is_local:
                await asyncio.to_thread(_copy, path, upload.path)
            else:
                # It could name any place in this user's folders.
                raise ProtocolError("A server elsewhere asks to write a file on this machine, which is not done")
        return asked.request_state

    async def _upload(self, method: str, url: str, path: PurePath) -> None:
        if self._send is None:
            raise ProtocolError("The server asks for an upload over HTTP on another transport")
        status, body = await self._send(method, url, path)
        if not 200 <= status < 300:
            raise HttpError(
                f"{path}: the server refused the file: {body.decode(errors='replace')[:200].strip()}", status
            )


def _read(path: PurePath) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _digest(path: PurePath) -> str:
    with open(path, "rb") as file:
        return urlsafe_b64encode(hashlib.file_digest(file, "sha256").digest()).rstrip(b"=").decode()


def _copy(path: PurePath, target: str) -> None:
    # Never over a file that is there.
    with open(path, "rb") as source, open(target, "xb") as file:
        shutil.copyfileobj(source, file)
