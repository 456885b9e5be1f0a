"""Escapes text from peers for logs, error messages and terminals.

What a peer sends may hold newlines, which forge lines of a log, escape sequences, which command a terminal, and marks
that turn the direction of text around. Every log line of ours that names something of a peer takes it from here;
tests/test_log_lines.py looks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from msgspec import DecodeError
from msgspec.json import decode, encode

MOST_CHARACTERS = 200
"""How much of one text is shown, unless more is asked for."""


def printable(value: object, most: int = MOST_CHARACTERS) -> str:
    """`str(value)` on one line, at most `most` characters of it; what does not print is written as `\\n` or `\\u202e`.

    Bytes are read as Latin-1. Never raises, whatever `value` does.
    """
    try:
        if isinstance(value, (bytes, bytearray)):
            text = bytes(value[: most + 1]).decode("latin-1")
            length = len(value)
        else:
            text = str(value)
            length = len(text)
    except Exception:
        return f"<{type(value).__name__}>"
    if length <= most and text.isprintable():
        return text
    # What Python calls printable leaves out controls, direction marks, lone surrogates and odd spaces.
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:most])
    return shown if length <= most else f"{shown}… ({length} characters)"


def printable_lines(text: str) -> str:
    """The whole text with its lines and tabs as they are; everything else that does not print is written as `\\x1b`."""
    if text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(printable(part, len(part)) for part in line.split("\t")) for line in lines)


_NAMES = frozenset((
    "authorization", "proxyauthorization", "cookie", "setcookie", "apikey", "xapikey", "token", "accesstoken",
    "refreshtoken", "idtoken", "authtoken", "bearertoken", "bearer", "clientsecret", "clientassertion",
    "secret", "secretkey", "privatekey", "password", "passwd", "passphrase", "credential", "credentials",
    "codeverifier",
))  # fmt: skip
"""Names of members, in small letters and without `-` and `_`."""

# Wider than the names: what has none of them needs no second look. Several searches for words are a hundred times
# faster than one for a pattern.
_HINTS = (
    b"authori", b"cookie", b"key", b"token", b"secret", b"pass", b"bearer", b"basic", b"credential", b"assertion",
    b"verifier", b"\\u",
)  # fmt: skip


class _Patterns(NamedTuple):
    scheme: re.Pattern[str]
    assigned: re.Pattern[str]
    flag: re.Pattern[str]
    url: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    return _Patterns(
        scheme=re.compile(r"(?i)\b(bearer|basic)(\s+)([A-Za-z0-9._~+/=-]{8,})"),
        assigned=re.compile(
            r"""(?ix) ( \b (?: [\w-]*[-_] )? (?: authorization | cookie | api[-_]?key
            | (?:access|refresh|id|auth)[-_]?token | token | client[-_]?secret | secret(?:[-_]?key)? | password | passwd
            | passphrase | private[-_]?key ) ["'\\]* \s* [:=] \s* ["'\\]* ) ( [^\s"'\\,;&}]{4,} )"""
        ),
        flag=re.compile(
            r"(?i)^--?[\w-]*(token|secret|password|passwd|passphrase|api-?key|authorization|credential)s?$"
        ),
        # postgres://user:password@host. Not what begins as a port does; a password may hold @ and, by mistake, a slash.
        url=re.compile(
            r"""(?ix) ( \b [a-z][a-z0-9+.-]* : (?:\\?/){2} [^\s"'`<>/?\#:@\[]* : ) (?! \d+ [/?\#] )
            ( [^\s"'`<>/?\#]+ (?=@) | [^\s"'`<>@]+ (?=@) )"""
        ),
    )


def may_hold_secrets(data: bytes) -> bool:
    """Whether these bytes have to be looked at more closely. An escape may hide a name, so that it counts as one."""
    small = data.lower()
    # The password of a URL stands before an @.
    return any(hint in small for hint in _HINTS) or (b"@" in small and (b"://" in small or b":\\/\\/" in small))


def mask_json(data: bytes) -> bytes:
    """A JSON text without the secrets in it. Raises what msgspec raises if it is none."""
    value = decode(data)
    masked = _masked(value)
    return data if masked == value else encode(masked)


def mask_text(text: str) -> str:
    """A text without what stands behind the name of a secret, behind `Bearer`, or as the password of a URL."""
    patterns = _patterns()
    text = patterns.url.sub(lambda found: found[1] + _stand_in(found[2]), text)
    text = patterns.scheme.sub(lambda found: f"{found[1]}{found[2]}{_stand_in(found[3])}", text)
    return patterns.assigned.sub(_mask_assigned, text)


def mask_command(words: Sequence[str]) -> list[str]:
    """A command line without secrets: `--token X`, `--token=X`, `Authorization: Bearer X`."""
    if not may_hold_secrets(" ".join(words).encode(errors="replace")):
        return list(words)
    masked: list[str] = []
    for word in words:
        is_value = bool(masked) and _patterns().flag.match(masked[-1]) is not None and not word.startswith("-")
        masked.append(_stand_in(word) if is_value else mask_text(word))
    return masked


def _masked(value: object) -> object:
    if isinstance(value, dict):
        return {
            name: _stand_in(member) if is_secret(name) and isinstance(member, str) else _masked(member)
            for name, member in value.items()
        }
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return _masked_string(value) if isinstance(value, str) else value


def _masked_string(text: str) -> str:
    """A string, which may hold JSON itself, as the text of a tool's result often does."""
    if text[:1] in ("{", "["):
        try:
            value = decode(text)
        except (DecodeError, ValueError, RecursionError):
            return mask_text(text)
        masked = _masked(value)
        return text if masked == value else encode(masked).decode()
    return mask_text(text)


def is_secret(name: object) -> bool:
    """Whether what stands below this name is a secret."""
    return isinstance(name, str) and name.lower().replace("-", "").replace("_", "") in _NAMES


def _mask_assigned(found: re.Match[str]) -> str:
    # "Authorization: Bearer …": the scheme is no secret, and what follows is masked already.
    value = found[2]
    is_known = value.lower() in ("bearer", "basic", "null", "none", "true", "false") or value.startswith("<masked")
    return found[0] if is_known else found[1] + _stand_in(value)


def _stand_in(secret: str) -> str:
    return f"<masked: {len(secret)} characters>"
