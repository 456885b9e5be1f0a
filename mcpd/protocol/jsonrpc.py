"""JSON-RPC 2.0 messages: decodes bytes into message structs and encodes them. This module knows nothing about MCP.

`params` and `result` stay raw JSON (`msgspec.Raw`) and are decoded once, by the code that knows the method. Ids keep
their JSON type; `0` and `""` are ids, `null` is not. A batch is returned as its raw parts, because only one protocol
version has batches and the session decides.

Spec: https://www.jsonrpc.org/specification and 2026-07-28 basic/index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder, Encoder
from msgspec.structs import replace

from mcpd.errors import (
    InvalidParams,
    InvalidRequest,
    LocalProtocolError,
    ParseError,
    ProtocolError,
    RemoteError,
    forget_frames,
)

Id: TypeAlias = int | str

# The exceptions of msgspec for bytes that are not JSON, not UTF-8, nested too deeply, or of the wrong shape.
MALFORMED = (DecodeError, UnicodeDecodeError, RecursionError)


# The value of `params` in a message without that member; compare with `is`.
ABSENT = Raw(b"")


class Request(Struct, gc=False):
    """A request. `params` is raw JSON, `ABSENT` if the member is missing."""

    jsonrpc: Literal["2.0"]
    id: Id
    method: str
    params: Raw = ABSENT


class Notification(Struct):
    """A notification: a message that gets no answer."""

    method: str
    params: Raw = ABSENT


class ErrorObject(Struct, omit_defaults=True):
    """The `error` member of an answer."""

    code: int
    message: str
    data: Any = UNSET


class Response(Struct):
    """A received answer with a result, which is raw JSON."""

    id: Id
    result: Raw


class Failure(Struct, tag_field="jsonrpc", tag="2.0"):
    """An error answer. If the id is unknown, `id` is UNSET, or None in versions whose schema requires the member."""

    error: ErrorObject
    id: Id | None | UnsetType = UNSET


class Result(Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    """An answer to send. `result` is a struct in the shape of its version, or raw JSON."""

    id: Id
    result: Any


class Batch(list[Raw]):
    """The raw parts of a JSON array, at most MOST_PARTS. Spec: 2025-03-26 basic/index, batching."""


MOST_PARTS = 1024

_LARGE_BATCH_BYTES = 1024 * 1024


class _AnyMessage(Struct):
    """Any message, for the slower path that finds out its kind."""

    jsonrpc: Any = UNSET
    id: Any = UNSET
    method: Any = UNSET
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Any = UNSET


class _Part(Struct, tag_field="jsonrpc", tag="2.0"):
    """The members that every part of a batch must have."""


class OutgoingMessage(Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    """A request to send, or a notification if it has no id: see `encode_message`."""

    method: str
    params: Any
    id: Id | UnsetType = UNSET


Message: TypeAlias = Request | Notification | Response | Failure

# Decodes a frame that is a request. Raises MALFORMED for everything else, which `decode_other` decodes.
decode_request = Decoder(Request).decode

_decode_any = Decoder(_AnyMessage).decode
_decode_parts = Decoder(list[Raw]).decode
_probe_parts = Decoder(list[_Part]).decode
_check_json = Decoder(Raw).decode


def decode(frame: bytes | Raw | str) -> Message | Batch:
    """Decode one frame into a message, or a non-empty batch into its raw parts. Lone surrogates become U+FFFD.

    Raises ParseError for bytes that are not JSON and InvalidRequest for JSON that is not a JSON-RPC 2.0 message. The
    exception's `request_id` is the id of the message, None if it is unknown.
    """
    try:
        return decode_request(frame)
    except MALFORMED:
        return decode_other(frame)
    except UnicodeEncodeError:
        # Text from a WebView or a script may hold a lone surrogate, which UTF-8 has no bytes for.
        assert isinstance(frame, str)
        return decode(frame.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))


def decode_batch(batch: Batch) -> list[Message | ProtocolError]:
    """Decode the parts of a batch, in order; each part that is not a message becomes the error to answer it with."""
    messages: list[Message | ProtocolError] = []
    for part in batch:
        try:
            message = decode(part)
        except ProtocolError as error:
            forget_frames(error)  # a traceback and this frame would otherwise keep each other alive
            messages.append(error)
        else:
            messages.append(InvalidRequest("A batch cannot hold a batch") if isinstance(message, Batch) else message)
    return messages


def decode_other(frame: bytes | Raw | str) -> Message | Batch:
    """Decode a frame that is not a plain request. Returns and raises the same as `decode`."""
    try:
        try:
            message = _decode_any(frame)
        except ValidationError as error:
            # msgspec stops at the first fault of shape: the rest may not even be JSON.
            _check_json(frame)
            return _split(frame, error)
    except RecursionError:
        raise _refuse(ParseError("Parse error: nested too deep")) from None
    except (DecodeError, UnicodeDecodeError) as error:
        whole = _without_lone_surrogates(frame)
        if whole is not None:
            return decode(whole)
        raise _refuse(ParseError(f"Parse error: {error}")) from None
    return _sort(message)


def _split(frame: bytes | Raw | str, error: ValidationError) -> Batch:
    # The work is bounded: each part costs a hundred times the bytes of an empty one, so the parts of a large frame must
    # look like messages.
    try:
        is_large = len(bytes(frame) if isinstance(frame, Raw) else frame) > _LARGE_BATCH_BYTES
        size = len(_probe_parts(frame)) if is_large else 0
        parts = _decode_parts(frame) if size <= MOST_PARTS else []
    except ValidationError:
        raise _refuse(InvalidRequest(f"Not a JSON-RPC message: {explain(error)}")) from None

    if max(size, len(parts)) > MOST_PARTS:
        raise _refuse(InvalidRequest(f"Batch too large: it may have {MOST_PARTS} messages")) from None
    if not parts:
        raise _refuse(InvalidRequest("Empty batch")) from None
    return Batch(parts)


def _without_lone_surrogates(frame: bytes | Raw | str) -> bytes | None:
    # JavaScript writes lone surrogates for text that was cut inside a character, as text from models sometimes is. JSON
    # leaves their meaning open (RFC 8259 section 8.2). If they were refused, the error answer would lack the id.
    data = frame.encode() if isinstance(frame, str) else bytes(frame)
    if len(data) > _MOST_SEARCHED or (b"\\ud" not in data and b"\\uD" not in data):
        return None
    whole = re.sub(_ESCAPE, lambda found: b"\\ufffd" if found[1] else found[0], data)
    return None if whole == data else whole


# The longest frame, in bytes, that is searched for lone surrogates: the search is slow.
_MOST_SEARCHED = 1024 * 1024

# A pair of surrogates, one alone (group 1), or any other escape.
_ESCAPE = (
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|[\x00-\xff])"
)


def _sort(message: _AnyMessage) -> Message:
    # Return the message as its kind. The checks run in the order of JSON-RPC 2.0 section 4.
    request_id: Any = message.id
    is_answer = message.result is not ABSENT or (message.error is not UNSET and message.error is not None)
    if is_answer and message.method is None:
        message.method = UNSET  # some servers write `"method": null` in their answers
    is_call = message.method is not UNSET
    # bool is a subclass of int, but not an id in JSON-RPC.
    readable = isinstance(request_id, (int, str)) and not isinstance(request_id, bool)
    if message.jsonrpc != "2.0":
        raise _refuse(InvalidRequest('The member "jsonrpc" must be "2.0"'), request_id if readable else None)
    if request_id is not UNSET and not readable and not (request_id is None and not is_call):
        raise _refuse(InvalidRequest("The id must be a string or an integer"))

    if is_call:
        if not isinstance(message.method, str):
            raise _refuse(InvalidRequest('The member "method" must be a string'), request_id if readable else None)
        if request_id is UNSET:
            return Notification(message.method, message.params)
        return Request("2.0", request_id, message.method, message.params)
    return _answer(message)


def _answer(message: _AnyMessage) -> Response | Failure:
    # A malformed answer is refused without its id: the id is one of ours, and the peer would take an error with that id
    # for the answer to a request of its own.
    has_result = message.result is not ABSENT
    has_error = message.error is not UNSET and not (has_result and message.error is None)
    request_id = message.id
    if has_result == has_error or (has_result and request_id is UNSET):
        raise _refuse(
            InvalidRequest("Neither a request (method), a result (id, result) nor an error (error)"),
            request_id if not has_error and not has_result and request_id is not UNSET else None,
        )

    if has_result:
        if request_id is None:
            raise _refuse(InvalidRequest("The id must be a string or an integer"))
        return Response(request_id, message.result)

    error = message.error
    if not isinstance(error, dict) or type(error.get("code")) is not int or not isinstance(error.get("message"), str):
        raise _refuse(InvalidRequest("An error needs an integer code and a message"))

    return Failure(ErrorObject(error["code"], error["message"], error.get("data", UNSET)), request_id)


def _refuse(error: ProtocolError, request_id: Id | None = None) -> ProtocolError:
    error.request_id = request_id
    return error


def explain(error: BaseException) -> str:
    """Return a msgspec error as text for the peer: the field, and what was expected there."""
    if isinstance(error, RecursionError):
        return "nested too deep"
    text = str(error).replace("`", "")
    what, found, where = text.partition(" - at $.")
    if found:
        return f"{where}: {what[:1].lower()}{what[1:]}"
    what, found, _ = text.partition(" - at $")
    return f"{what[:1].lower()}{what[1:]}" if found or text.startswith(("Expected", "Object")) else text


# Encodes a message struct as bytes, without a trailing newline.
encode = Encoder().encode


def as_json(data: Any, to_builtins: Callable[[Any], Any]) -> Any:
    """Convert any object to JSON values, or to its `repr` if `to_builtins` cannot convert it. Never raises."""
    try:
        plain = replace_lone_surrogates(to_builtins(data))
        encode(plain)
    except Exception:
        try:
            return replace_lone_surrogates(repr(data))
        except Exception:
            return f"<{type(data).__qualname__}>"
    return plain


_read_any = Decoder().decode


def is_object(raw: Raw | bytes) -> bool:
    return bytes(raw).lstrip()[:1] == b"{"


def as_object(value: Any, what: str) -> Raw:
    """Encode a mapping or struct as a JSON object. Raw JSON is returned as it is.

    Raises LocalProtocolError, which names the value `what`, if it is not an object or cannot be encoded.
    """
    try:
        raw = value if isinstance(value, Raw) else Raw(encode(dict(value) if isinstance(value, Mapping) else value))
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise LocalProtocolError(f"{what} cannot be written as JSON: {error}") from error
    if not is_object(raw):
        raise LocalProtocolError(f"{what} must be a JSON object")
    return raw


def read_object(raw: Raw | bytes, what: str) -> dict[str, Any]:
    """Decode a JSON object from a peer; no bytes and `null` are an empty object.

    Raises InvalidParams, which names the value `what`, for any other value.
    """
    data = bytes(raw)
    try:
        value = _read_any(data) if data else None
    except MALFORMED as error:
        raise InvalidParams(f"{what} cannot be read as JSON") from error

    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidParams(f"{what} must be a JSON object")
    return value


def replace_lone_surrogates(value: Any) -> Any:
    """Return a copy of a message, or of a part of one, with U+FFFD for lone surrogates.

    Python has lone surrogates in file names that are not UTF-8 and in text that was cut inside a pair; UTF-8 cannot
    encode them. Subclasses of str become plain strings.
    """
    if isinstance(value, str):
        return str.__str__(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {replace_lone_surrogates(key): replace_lone_surrogates(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_lone_surrogates(item) for item in value]

    if isinstance(value, Struct):
        return replace(
            value, **{name: replace_lone_surrogates(getattr(value, name)) for name in value.__struct_fields__}
        )
    return value


def error_answer(
    error: ProtocolError | RemoteError, request_id: Id | None | UnsetType = UNSET, code: int | None = None
) -> Failure:
    """Return the error answer for an exception.

    Args:
        error: The exception.
        request_id: UNSET leaves the member out; None writes `null`, for versions whose schema requires the member.
        code: Replaces the error's own code.
    """
    data = UNSET if error.data is None else error.data
    return Failure(ErrorObject(error.code if code is None else code, error.message, data), request_id)


def remote_error(answer: Failure) -> RemoteError:
    error = answer.error
    return RemoteError(error.code, error.message, None if error.data is UNSET else error.data)


def encode_message(method: str, params: Any = None, request_id: Id | UnsetType = UNSET) -> bytes:
    """Encode a request, or a notification if the id is missing. With `params` None the member is left out."""
    return encode(OutgoingMessage(method, UNSET if params is None else params, request_id))
