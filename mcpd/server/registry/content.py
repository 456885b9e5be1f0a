"""Converts Python values to content blocks and resource contents.

Also has the short functions that authors use to build blocks. Spec: 2026-07-28 server/tools (tool result),
server/resources.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from msgspec import UNSET, Raw
from msgspec.json import Decoder, Encoder

from mcpd.errors import InternalError
from mcpd.protocol.jsonrpc import replace_lone_surrogates
from mcpd.protocol.types.features import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcpd.server.functions.results import enc_hook, to_builtins

BLOCKS = (TextContent, ImageContent, AudioContent, EmbeddedResource, ResourceLink)

_BYTES = (bytes, bytearray, memoryview)
_CONTENTS = (TextResourceContents, BlobResourceContents)

encode_data = Encoder(enc_hook=enc_hook).encode
_decode_text = Decoder(str).decode

_IMAGE_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif"}
_IMAGE_TYPES |= {".webp": "image/webp", ".svg": "image/svg+xml"}
_IMAGE_BEGINNINGS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_IMAGE_BEGINNINGS |= {b"RIFF....WEBP": "image/webp"}
# The first bytes of each type of file; four dots are the file's size.
_AUDIO_BEGINNINGS = {b"RIFF....WAVE": "audio/wav", b"ID3": "audio/mpeg", b"OggS": "audio/ogg", b"fLaC": "audio/flac"}
_AUDIO_TYPES = {".wav": "audio/wav", ".mp3": "audio/mpeg", ".ogg": "audio/ogg", ".flac": "audio/flac"}


def is_content(kind: object) -> bool:
    """Return whether a return type is content already; such a tool has no output schema."""
    if kind in BLOCKS:
        return True
    return isinstance(kind, type) and (issubclass(kind, CallToolResult) or hasattr(kind, "mcpd_is_content"))


def text(value: str) -> TextContent:
    """Return a text block, for results and prompts that mix kinds. A str alone needs none.

    Spec: 2026-07-28 server/tools, text content.
    """
    return TextContent(value)


def image(data: bytes | str | os.PathLike[str], mime_type: str = "") -> ImageContent:
    """Return an image block from bytes, or from a file (a path as str or Path), which is read at once.

    `mime_type`, such as `image/png`, is known for the extensions .png .jpg .jpeg .gif .webp .svg, and from the first
    bytes of PNG, JPEG, GIF and WebP. Raises ValueError if it is needed and missing, OSError if the file cannot be read.
    Spec: 2026-07-28 server/tools, image content.
    """
    return ImageContent(*_load(data, mime_type, _IMAGE_TYPES, _IMAGE_BEGINNINGS))


def audio(data: bytes | str | os.PathLike[str], mime_type: str = "") -> AudioContent:
    """Return an audio block from bytes, or from a file (a path as str or Path), which is read at once.

    `mime_type`, such as `audio/wav`, is known for the extensions .wav .mp3 .ogg .flac, and from the first bytes of such
    files. Raises ValueError if it is needed and missing, OSError if the file cannot be read. Clients older than
    2025-03-26, which have no audio, receive a line of text. Spec: 2026-07-28 server/tools, audio content.
    """
    return AudioContent(*_load(data, mime_type, _AUDIO_TYPES, _AUDIO_BEGINNINGS))


def embedded(uri: str, content: str | bytes, mime_type: str | None = None) -> EmbeddedResource:
    """Return a block with a resource's content inside; the resource need not be listed.

    Without `mime_type` a str is `text/plain` and bytes are `application/octet-stream`. Spec: 2026-07-28 server/tools,
    embedded resources.
    """
    if isinstance(content, str):
        return EmbeddedResource(TextResourceContents(uri, content, mime_type or "text/plain"))
    return EmbeddedResource(BlobResourceContents(uri, content, mime_type or "application/octet-stream"))


def link(
    uri: str,
    name: str,
    *,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
) -> ResourceLink:
    """Return a link to a resource that the client may read; the resource need not be listed. `size` is in bytes.

    Clients older than 2025-06-18, which have no links, receive a line of text. Spec: 2026-07-28 server/tools, resource
    links.
    """
    return ResourceLink(uri=uri, name=name, title=title, description=description, mime_type=mime_type, size=size)


class Unwritable(TypeError):
    """A result that is not content and cannot be written as JSON. The text is for the tool's author."""


def _load(
    data: bytes | str | os.PathLike[str], mime_type: str, types: dict[str, str], beginnings: dict[bytes, str]
) -> tuple[bytes, str]:
    # Return the content and its MIME type: the given type, otherwise the type of the file's name or of the first bytes.
    if isinstance(data, bytes):
        content, where = data, "bytes"
    else:
        path = os.fspath(data)
        mime_type = mime_type or types.get(os.path.splitext(path)[1].lower(), "")
        where = repr(data)
        with open(path, "rb") as file:
            content = file.read()

    known = mime_type or _guessed(content, beginnings)
    if not known:
        raise ValueError(f"No MIME type known for {where}: pass mime_type=")
    return content, known


def _guessed(content: bytes, beginnings: dict[bytes, str]) -> str:
    sized = content[:4] + b"...." + content[8:12]
    for beginning, mime_type in beginnings.items():
        if content.startswith(beginning) or (sized.startswith(beginning) and beginning.startswith(b"RIFF")):
            return mime_type
    return ""


def _block(value: Any) -> Any:
    if isinstance(value, BLOCKS):
        return value
    if isinstance(value, str):
        # msgspec does not know subclasses of str, so they become plain strings.
        return TextContent(str.__str__(value))
    if isinstance(value, _BYTES):
        return _block_of_bytes(bytes(value))
    return TextContent(_json(value).decode())


def _block_of_bytes(data: bytes) -> ImageContent | AudioContent | EmbeddedResource:
    # Return bytes as a block by their first bytes. Unknown types become a resource with a digest as its URI.
    if mime_type := _guessed(data, _IMAGE_BEGINNINGS):
        return ImageContent(data, mime_type)
    if mime_type := _guessed(data, _AUDIO_BEGINNINGS):
        return AudioContent(data, mime_type)
    from hashlib import sha256  # few tools return bytes

    return embedded(f"urn:sha256:{sha256(data).hexdigest()}", data)


def _json(value: Any) -> bytes:
    try:
        return encode_data(value)
    except UnicodeEncodeError:
        return encode_data(replace_lone_surrogates(to_builtins(value)))
    except RecursionError:
        raise Unwritable("it contains itself, or is nested too deep") from None
    except (TypeError, NotImplementedError) as error:
        place = _place(value)
        raise Unwritable(f"{place}: {error}" if place else str(error)) from error


def _place(value: Any, depth: int = 20) -> str:
    # Return the path of the part that cannot be written, such as `["beds"][2]`; "" for the value itself.
    members: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, (list, tuple)):
        members = enumerate(value)
    for key, member in members if depth else ():
        try:
            encode_data(member)
        except (TypeError, NotImplementedError):
            return f"[{key!r}]{_place(member, depth - 1)}"
        except (UnicodeEncodeError, RecursionError):
            continue
    return ""


def _is_content_list(value: Any, gives_blocks: bool) -> bool:
    if not isinstance(value, (list, tuple)):
        return False
    if not value:
        return gives_blocks
    return all(isinstance(item, str) for item in value) or any(isinstance(item, BLOCKS + _BYTES) for item in value)


def tool_result(value: Any, has_schema: bool, gives_blocks: bool = False) -> CallToolResult:
    """Convert a tool's return value to a result.

    A str, bytes and content blocks are content, and so is a list of strings or one that contains a block. Anything else
    is data: its JSON is the text, a string without quotes. It is also the structured content if the tool has an output
    schema or the data are an object. `gives_blocks` means that the tool promises a list of blocks, so an empty list
    becomes an empty result.
    """
    if value.__class__ is str and not has_schema:
        return CallToolResult(content=[TextContent(value)])
    if isinstance(value, CallToolResult):
        return value

    if not has_schema:
        if value is None:
            return CallToolResult(content=[])
        if isinstance(value, BLOCKS):
            return CallToolResult(content=[value])
        if _is_content_list(value, gives_blocks):
            return CallToolResult(content=[_block(item) for item in value])
        if isinstance(value, (str, *_BYTES)):
            return CallToolResult(content=[_block(value)])

    raw = _json(value)
    structured = Raw(raw) if has_schema or raw[:1] == b"{" else UNSET
    # A string such as a date or a choice has no quotes, because models often repeat them.
    shown = _decode_text(raw) if raw[:1] == b'"' else raw.decode()
    return CallToolResult(content=[TextContent(shown)], structured_content=structured)


def resource_contents(value: Any, uri: str, mime_type: str | None) -> list[Any]:
    """Convert a resource function's return value to `contents`: text, bytes, data (as JSON) or finished contents."""
    if isinstance(value, str):
        return [TextResourceContents(uri, str.__str__(value), mime_type or "text/plain")]
    if isinstance(value, _BYTES):
        return [BlobResourceContents(uri, bytes(value), mime_type or "application/octet-stream")]
    if isinstance(value, _CONTENTS):
        return [value]
    if isinstance(value, list) and value and all(isinstance(item, _CONTENTS) for item in value):
        return value
    if value is None:
        raise InternalError("The resource returned None")
    return [TextResourceContents(uri, _json(value).decode(), mime_type or "application/json")]
