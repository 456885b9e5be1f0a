"""The draft of the extension `io.modelcontextprotocol/files` on the wire (SEP-2631), as Claude Code 2.1.332 speaks it.

It may still change, so nothing else of the package knows its members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType, convert
from msgspec.json import encode

from mcpd.errors import ToolError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.types.base import RawResult, Wire
from .file import Accept

ANNOTATION = "x-mcp-file"


class Digest(Struct, frozen=True):
    """A digest as the host declares it."""

    algorithm: str
    value: str


class HostFile(Wire, kw_only=True):
    """A file that the host has, in place of the path that the model wrote."""

    id: str
    size: int
    name: str = ""
    mime_type: str = ""
    digest: Digest | None = None
    data: str | None = None
    """The bytes in base64, if the host sends them with the call."""

    @property
    def sha256(self) -> str:
        """The declared SHA-256 digest in base64url; "" without one."""
        return "" if self.digest is None else self.digest.value.rstrip("=")


class Upload(Struct, rename="camel", kw_only=True):
    """Where the host puts one file: exactly one of `url` and `path`."""

    file_id: str
    url: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    method: Literal["PUT"] = "PUT"
    credentials: Literal["include", "omit"] = "omit"


def read_host_file(value: Mapping[str, Any], where: str) -> HostFile:
    """Return the file that an argument describes. Raises ToolError."""
    try:
        file = convert(value, HostFile)
    except MALFORMED as error:
        raise ToolError(f"{where}: the description of the file cannot be read: {error}") from None
    if not 0 < len(file.id) <= 200 or file.size < 0:
        raise ToolError(f"{where}: the description of the file needs an id, and a size in bytes.")
    if file.digest is not None and file.digest.algorithm != "sha-256":
        raise ToolError(f"{where}: the digest must be sha-256.")
    return file


def upload_required(uploads: Sequence[Upload], state: str, meta: Any) -> RawResult:
    """Return the result that asks the host to upload files and to call again (FIL-02)."""
    members = {"resultType": "upload_required", "requestState": state, "uploads": uploads, "_meta": meta}
    return RawResult(raw=Raw(encode(members)))


def file_schema(accept: Accept, most: int) -> dict[str, Any]:
    """Return the schema of a file, which hosts with the extension show as the path of a local file.

    Claude Code takes no other form: an object that requires these three members, and refuses none of the others.
    """
    limits: dict[str, Any] = {"maxSize": min(most, accept.max_bytes or most)}
    if accept.types:
        limits["accept"] = list(accept.types)
    text = {"type": "string"}
    digest = {"type": "object", "properties": {"algorithm": text, "value": text}}
    members = {"id": text, "name": text, "mimeType": text, "size": {"type": "integer"}, "digest": digest, "data": text}
    return {"type": "object", "properties": members, "required": ["id", "mimeType", "size"], ANNOTATION: limits}


def settings(max_inline_bytes: int) -> dict[str, Any]:
    """Return the server's capability. A member `revision` would make the host decline."""
    return {"upload": {}, "maxInlineBytes": max_inline_bytes}


def is_offered(client: Mapping[str, Any] | None) -> bool:
    """Return whether a client's settings of the extension say that it uploads."""
    return isinstance(client, Mapping) and isinstance(client.get("upload"), Mapping)
