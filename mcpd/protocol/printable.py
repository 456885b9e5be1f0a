"""Makes text from peers safe for logs, error messages and terminals, and masks secrets in it.

Text from a peer may contain newlines, which forge log lines, escape sequences, which control a terminal, and marks that
reverse the direction of text. Every log call that quotes a peer uses `printable`; tests/test_log_lines.py checks it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import DecodeError
from msgspec.json import decode, encode

MOST_CHARACTERS = 200


def printable(value: object, most: int = MOST_CHARACTERS) -> str:
    """Return `str(value)` on one line, cut to `most` characters, with escapes such as `\\n` and `\\u202e`.

    Bytes are decoded as Latin-1. Never raises, even if `str(value)` does.
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
    # `isprintable` is false for control characters, direction marks, lone surrogates and unusual spaces.
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:most])
    return shown if length <= most else f"{shown}… ({length} characters)"


def printable_lines(text: str) -> str:
    """Return the whole text with its newlines and tabs, and with escapes for other characters that do not print."""
    if text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(printable(part, len(part)) for part in line.split("\t")) for line in lines)


# Names of members that hold secrets, in lower case and without `-` and `_`.
_NAMES = frozenset((
    "authorization", "proxyauthorization", "cookie", "setcookie", "apikey", "xapikey", "token", "accesstoken",
    "refreshtoken", "idtoken", "authtoken", "bearertoken", "bearer", "clientsecret", "clientassertion",
    "secret", "secretkey", "privatekey", "password", "passwd", "passphrase", "credential", "credentials",
    "codeverifier",
))  # fmt: skip

# A quick test: a text without any of these words contains no secret. Searching for a few words is a hundred times
# faster than searching for one pattern.
_HINTS = (
    b"authori", b"cookie", b"key", b"token", b"secret", b"pass", b"bearer", b"basic", b"credential", b"assertion",
    b"verifier", b"\\u",
)  # fmt: skip


# `re` compiles these patterns when they are first used.
_SCHEME = r"(?i)\b(bearer|basic)(\s+)([A-Za-z0-9._~+/=-]{8,})"
_ASSIGNED = r"""(?ix) ( \b (?: [\w-]*[-_] )? (?: authorization | cookie | api[-_]?key
            | (?:access|refresh|id|auth)[-_]?token | token | client[-_]?secret | secret(?:[-_]?key)? | password | passwd
            | passphrase | private[-_]?key ) ["'\\]* \s* [:=] \s* ["'\\]* ) ( [^\s"'\\,;&}]{4,} )"""
_FLAG = r"(?i)^--?[\w-]*(token|secret|password|passwd|passphrase|api-?key|authorization|credential)s?$"
# postgres://user:password@host, but not host:port. A password may contain @ and, by mistake, a slash.
_URL = r"""(?ix) ( \b [a-z][a-z0-9+.-]* : (?:\\?/){2} [^\s"'`<>/?\#:@\[]* : ) (?! \d+ [/?\#] )
            ( [^\s"'`<>/?\#]+ (?=@) | [^\s"'`<>@]+ (?=@) )"""


def may_hold_secrets(data: bytes) -> bool:
    """Return False if these bytes certainly contain no secret."""
    small = data.lower()
    # `user:password@host` in a URL. The hints include `\\u`, because an escape may hide a name.
    return any(hint in small for hint in _HINTS) or (b"@" in small and (b"://" in small or b":\\/\\/" in small))


def mask_json(data: bytes) -> bytes:
    """Mask the secrets in a JSON text. Raises what msgspec raises for bytes that are not JSON."""
    value = decode(data)
    masked = _masked(value)
    return data if masked == value else encode(masked)


def mask_text(text: str) -> str:
    """Mask values that follow the name of a secret or the word `Bearer`, and passwords in URLs."""
    text = re.sub(_URL, lambda found: found[1] + _stand_in(found[2]), text)
    text = re.sub(_SCHEME, lambda found: f"{found[1]}{found[2]}{_stand_in(found[3])}", text)
    return re.sub(_ASSIGNED, _mask_assigned, text)


def mask_command(words: Sequence[str]) -> list[str]:
    """Mask the secrets in a command line: `--token X`, `--token=X`, `Authorization: Bearer X`."""
    if not may_hold_secrets(" ".join(words).encode(errors="replace")):
        return list(words)
    masked: list[str] = []
    for word in words:
        is_value = bool(masked) and re.match(_FLAG, masked[-1]) is not None and not word.startswith("-")
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
    # Mask a string, which may contain JSON, as the text of a tool's result often does.
    if text[:1] in ("{", "["):
        try:
            value = decode(text)
        except (DecodeError, ValueError, RecursionError):
            return mask_text(text)
        masked = _masked(value)
        return text if masked == value else encode(masked).decode()
    return mask_text(text)


def is_secret(name: object) -> bool:
    """Return whether a member of this name holds a secret."""
    return isinstance(name, str) and name.lower().replace("-", "").replace("_", "") in _NAMES


def _mask_assigned(found: re.Match[str]) -> str:
    # In "Authorization: Bearer …", the scheme is not a secret, and the token is already masked.
    value = found[2]
    is_known = value.lower() in ("bearer", "basic", "null", "none", "true", "false") or value.startswith("<masked")
    return found[0] if is_known else found[1] + _stand_in(value)


def _stand_in(secret: str) -> str:
    return f"<masked: {len(secret)} characters>"
