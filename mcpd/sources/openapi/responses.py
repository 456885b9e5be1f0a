"""Makes the result of a tool from an HTTP response: JSON, text, images, other files, or an error."""

from __future__ import annotations

import re
from hashlib import sha256
from http import HTTPStatus
from typing import Final

from msgspec import UNSET, DecodeError, Raw
from msgspec.json import decode, encode

from mcpd.auth.fetch import Response
from mcpd.protocol.printable import printable_lines
from mcpd.protocol.types.features import AudioContent, CallToolResult, ContentBlock, ImageContent, TextContent
from mcpd.server.registry.content import embedded
from mcpd.server.registry.tools import failed
from .operations import Operation, encoding_of

_MOST_ERROR: Final = 2000


def result_of(operation: Operation, response: Response) -> CallToolResult:
    """Return the result of a call."""
    phrase = next((f" {each.phrase}" for each in HTTPStatus if each == response.status), "")
    answered = f"{operation.method.upper()} {operation.path} answered {response.status}{phrase}"
    if not 200 <= response.status < 300:
        return failed(f"{answered}{_short(response)}")

    check = operation.output_check
    if response.body.strip() and encoding_of(_type(response) or "text/plain") == "json":
        try:
            value = decode(response.body)
            written = encode(value)
            problems = [] if check is None else check.problems(value)
        except (DecodeError, RecursionError, ValueError):
            value, written, problems = None, b"", ["it is not JSON"]
        if not problems:
            text = value if isinstance(value, str) else written.decode()
            is_structured = check is not None or isinstance(value, dict)
            structured = Raw(written) if is_structured else UNSET
            return CallToolResult(content=[TextContent(text)], structured_content=structured)
    else:
        problems = ["it is not JSON"]

    if check is not None:
        # A client would refuse such a result as a whole, and the model would not see what happened.
        text = f"The request was carried out, but the response does not fit the document: {'; '.join(problems[:3])}"
        return failed(f"{answered}. {text}{_short(response, 20 * _MOST_ERROR)}")

    return CallToolResult(content=[_block(response) if response.body else TextContent(f"{response.status}{phrase}")])


def _block(response: Response) -> ContentBlock:
    kind = _type(response).partition(";")[0].strip().lower()
    if not kind or encoding_of(kind) != "binary":
        return TextContent(_decoded(response))
    if kind.startswith(("image/", "audio/")):
        return (ImageContent if kind[0] == "i" else AudioContent)(response.body, kind)
    return embedded(f"urn:sha256:{sha256(response.body).hexdigest()}", response.body, kind)


def _decoded(response: Response) -> str:
    # Other encodings of Python are slow, or no encodings of text.
    named = re.search(
        r"charset=[\"']?((?:utf|iso|windows|latin|us-|shift|euc|gb|big5|koi8)[\w-]+)", _type(response), re.I
    )
    try:
        return response.body.decode(named[1] if named else "utf-8", "replace")
    except (LookupError, ValueError):
        return response.body.decode("utf-8", "replace")


def _short(response: Response, most: int = _MOST_ERROR) -> str:
    # The beginning of a body that explains an error, after a colon; "" if it is binary.
    if not response.body or encoding_of(_type(response) or "text/plain") == "binary":
        return ""
    text = printable_lines(_decoded(response).strip())
    return f": {text}" if len(text) <= most else f": {text[:most]} …"


def _type(response: Response) -> str:
    return response.header("Content-Type") or ""
