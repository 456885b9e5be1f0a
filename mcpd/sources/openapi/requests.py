"""Writes the HTTP request of a call: parameters in the path, the query, headers and cookies, and the body.

Values in the path are percent-encoded as a whole. A value that would lead to another path, in any encoding, is refused:
servers and proxies decode a path before they choose what it names. Spec: OpenAPI 3.1, styles; RFC 7578.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator, Mapping
from os import urandom
from typing import Any
from urllib.parse import quote, unquote, unquote_to_bytes

from msgspec.json import encode

from mcpd.errors import ToolError
from mcpd.server.registry.uri_template import path_problem
from .operations import Body, Operation, Parameter


def request_for(
    operation: Operation, arguments: Mapping[str, Any], query: Mapping[str, str]
) -> tuple[str, dict[str, str], bytes | None]:
    """Return the path with its query, the headers and the body of a call whose arguments fit the input schema.

    `query` has fixed parameters. Raises ToolError for a value that cannot be sent.
    """
    path: dict[str, str] = {}
    pairs: list[tuple[str, str]] = [*query.items()]
    headers: dict[str, str] = {"Accept": "application/json, text/*;q=0.8, */*;q=0.5"}
    cookies: list[str] = []
    for parameter in operation.parameters:
        value = arguments.get(parameter.argument)
        if value is None and parameter.place != "path":
            continue
        if parameter.place == "query":
            pairs += _query(parameter, value)
        elif parameter.place == "cookie":
            cookies += [f"{name}={quote(text, safe='')}" for name, text in _query(parameter, value)]
        elif parameter.place == "header":
            headers[parameter.name] = text = _joined(parameter, value)
            if not text.isprintable() or text != text.strip() or any(c > "\xff" for c in text):
                raise ToolError(f"{parameter.argument}: a header cannot hold this text; use one line of Latin letters")
        else:
            text = "" if value is None else _joined(parameter, value)
            if problem := path_problem(text) if text.strip(".") else "is empty or dots":
                raise ToolError(f"{parameter.argument}: it {problem}, so it cannot be a part of a path")
            path[parameter.name] = quote(text, safe="")

    target = re.sub(r"\{([^{}]*)\}", lambda found: path[found[1]], quote(operation.path, safe="/{}:@!$&'()*+,;=~%?"))
    if any(unquote(part) in (".", "..") for part in target.split("/")):
        raise ToolError("the arguments lead to another path")
    for each in operation.credentials:
        if each.place == "header":
            headers[each.name] = each.value
        elif each.place == "query":
            pairs.append((each.name, each.value))
        else:
            cookies.append(f"{each.name}={quote(each.value, safe='')}")

    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    body = None if operation.body is None else _body(operation.body, arguments, headers)
    if pairs:
        target += ("&" if "?" in target else "?") + _encoded(pairs)
    return target, headers, body


def _encoded(pairs: Iterable[tuple[str, str]]) -> str:
    return "&".join(f"{quote(name, safe='[]')}={quote(text, safe='')}" for name, text in pairs)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _joined(parameter: Parameter, value: Any, separator: str = ",") -> str:
    if parameter.is_json or not isinstance(value, (list, dict)):
        return encode(value).decode() if parameter.is_json else _text(value)
    if isinstance(value, list):
        return separator.join(map(_text, value))
    between = "=" if parameter.is_exploded else separator
    return separator.join(f"{name}{between}{_text(each)}" for name, each in value.items())


_SEPARATORS = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|", "deepObject": ","}


def _query(parameter: Parameter, value: Any) -> list[tuple[str, str]]:
    if parameter.style == "deepObject" and not parameter.is_json:
        return list(_deep(parameter.name, value))
    if parameter.is_json or not parameter.is_exploded or not isinstance(value, (list, dict)):
        return [(parameter.name, _joined(parameter, value, _SEPARATORS[parameter.style]))]
    if isinstance(value, dict):
        return [(name, _text(each)) for name, each in value.items()]
    return [(parameter.name, _text(each)) for each in value]


def _deep(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, (dict, list)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _deep(f"{name}[{key}]", each)
    elif value is not None:
        yield name, _text(value)


def _members(name: str, value: Any) -> list[Any]:
    # The values of a member of a form: a list of plain values is sent as several members.
    is_list = isinstance(value, list) and not any(isinstance(each, (dict, list)) for each in value)
    return value if is_list else [] if value is None else [value]


def _body(body: Body, arguments: Mapping[str, Any], headers: dict[str, str]) -> bytes | None:
    if body.argument not in arguments:
        return None
    value = arguments[body.argument]
    headers["Content-Type"] = body.media_type
    if body.encoding == "json":
        headers["Content-Type"] = "application/json" if "*" in body.media_type else body.media_type
        return encode(value)
    if body.encoding == "text":
        return _text(value).encode()
    if body.encoding == "binary":
        data, media_type, _ = _file(body.argument, value)
        headers["Content-Type"] = media_type if "*" in body.media_type else body.media_type
        return data

    if not isinstance(value, dict):
        raise ToolError(f"{body.argument}: it must be an object, the members of a form")
    members = [(name, each) for name, several in value.items() for each in _members(name, several)]
    if body.encoding == "form":
        return _encoded(pair for name, each in members for pair in _deep(name, each)).encode()

    boundary = f"mcpd-{urandom(16).hex()}"
    headers["Content-Type"] = f"multipart/form-data; boundary={boundary}"
    parts = [f"--{boundary}\r\nContent-Disposition: form-data; ".encode() + _part(body, *each) for each in members]
    return b"".join((*parts, f"--{boundary}--\r\n".encode()))


def _part(body: Body, name: str, value: Any) -> bytes:
    head = f'name="{_quoted(name)}"'
    if name in body.files:
        data, media_type, file = _file(name, value)
        head += f'; filename="{_quoted(file)}"\r\nContent-Type: {media_type}'
    else:
        head += "\r\nContent-Type: application/json" if isinstance(value, (dict, list)) else ""
        data = _text(value).encode()
    return f"{head}\r\n\r\n".encode() + data + b"\r\n"


def _quoted(name: str) -> str:
    # As browsers write names (WHATWG HTML, multipart/form-data).
    return name.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")


_DATA = re.compile(r"data:([\w.+*/-]*)((?:;[\w-]+=[^;,]*)*)(;base64)?,", re.IGNORECASE)


def _file(argument: str, value: Any) -> tuple[bytes, str, str]:
    # Return the content, media type and name of a file, from a `data:` URI or plain text.
    text = _text(value)
    found = _DATA.match(text)
    if found is None:
        return text.encode(), "text/plain; charset=utf-8", argument
    named = re.search(r";name=([^;,]*)", found[2], re.IGNORECASE)
    name = unquote(named[1]).replace("\\", "/").rpartition("/")[2] if named else ""
    rest = text[found.end() :]
    try:
        data = b64decode(unquote(rest), validate=True) if found[3] else unquote_to_bytes(rest)
    except (Base64Error, ValueError):
        raise ToolError(f"{argument}: the data: URI is not valid base64") from None

    media_type = found[1] if re.fullmatch(r"[\w.+-]+/[\w.+-]+", found[1]) else "application/octet-stream"
    return data, media_type, name or argument
