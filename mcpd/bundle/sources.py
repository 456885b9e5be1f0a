"""Which files of a folder go into a bundle: all that others may have, and nothing that was only ever meant for here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

from ..errors import ConfigurationError

__all__ = ["Collected", "collect", "ignored_here"]

IGNORE = ".mcpbignore"
"""Patterns of more that is left out, one in a line, as the official tool reads it."""

MOST_BYTES = 512 * 1024 * 1024
MOST_FILES = 50_000

_LITTER = ("__pycache__", "node_modules", "*.pyc", "*.pyo", "*.egg-info", "*.mcpb", "*.dxt", "*.log", "*.tmp", "*.swp",
           "Thumbs.db", "uv.lock")  # fmt: skip
_SECRETS = ("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.kdbx", "*.keystore", "id_rsa*", "id_ed25519*", "id_ecdsa*",
            "secret.*", "secrets.*", "*.secret", "*.secrets", "credentials", "credentials.*", "*credentials*.json",
            "service-account*.json", "service_account*.json", "*.token", "token", "token.*")  # fmt: skip
_NOT_SECRET = (".py", ".md", ".html")
_KEY_HEAD_BYTES = 4096


class Collected(Struct):
    """What was found: paths relative to the folder, with `/`."""

    files: dict[str, str]
    """The file to read for each."""
    left_out: dict[str, str]
    """Why, for each that is not in it; a folder with a `/` behind its name."""
    bytes: int = 0


def collect(root: str, only: Iterable[str] | None = None, ignored: Iterable[str] = ()) -> Collected:
    """The files below a folder, or of `only` and of what is below those. Raises ConfigurationError if it is too much.

    `ignored` are patterns of names, or of paths below the folder.
    """
    found = Collected({}, {})
    patterns = tuple(ignored)
    for start in (root,) if only is None else sorted(only):
        if os.path.isdir(start):
            _walk(start, root, patterns, found)
        else:
            _take(start, root, patterns, found)
    return found


def ignored_here(root: str) -> list[str]:
    """The patterns of a folder's own file."""
    try:
        with open(os.path.join(root, IGNORE), encoding="utf-8-sig") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError):
        return []
    return [line for line in lines if line and not line.startswith("#")]


def _walk(start: str, root: str, patterns: tuple[str, ...], found: Collected) -> None:
    for folder, names, files in os.walk(start):
        for name in sorted(names):
            path = os.path.join(folder, name)
            why = _why_not(_inside(path, root), name, patterns) or _why_no_folder(path, root)
            if why:
                found.left_out[f"{_inside(path, root)}/"] = why
                names.remove(name)
        names.sort()
        for name in sorted(files):
            _take(os.path.join(folder, name), root, patterns, found)


def _take(path: str, root: str, patterns: tuple[str, ...], found: Collected) -> None:
    inside = _inside(path, root)
    why = _why_not(inside, os.path.basename(path), patterns) or _why_no_file(path, root)
    if why:
        found.left_out[inside] = why
        return
    found.files[inside] = path
    found.bytes += os.path.getsize(path)
    if found.bytes > MOST_BYTES or len(found.files) > MOST_FILES:
        raise ConfigurationError(
            f"{root}: there is more in it than a bundle takes ({MOST_BYTES // 1024 // 1024} MiB, {MOST_FILES} files); "
            f"name what does not belong to the server in {IGNORE}, one pattern in a line"
        )


def _why_not(inside: str, name: str, patterns: tuple[str, ...]) -> str:
    """Why nothing of this name is taken; "" if it is."""
    if name.startswith("."):
        return "hidden"
    if any(fnmatchcase(name, pattern) for pattern in _LITTER):
        return "not part of the server"
    if not name.endswith(_NOT_SECRET) and any(fnmatchcase(name.lower(), pattern) for pattern in _SECRETS):
        return "may be a secret"
    for pattern in patterns:
        bare = pattern.strip("/")
        is_meant = fnmatchcase(inside, bare) if "/" in bare or pattern.startswith("/") else fnmatchcase(name, bare)
        if is_meant:
            return f"named in {IGNORE}"
    return ""


def _why_no_folder(path: str, root: str) -> str:
    if os.path.islink(path):
        return "a link to a folder"
    if os.path.isfile(os.path.join(path, "pyvenv.cfg")):
        return "a virtual environment"
    return ""


def _why_no_file(path: str, root: str) -> str:
    if os.path.islink(path):
        target = os.path.realpath(path)
        if not target.startswith(os.path.realpath(root) + os.sep):
            return "a link to a file elsewhere"
    if not os.path.isfile(path):
        return "no file"
    try:
        with open(path, "rb") as file:
            head = file.read(_KEY_HEAD_BYTES)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    return "a private key" if b"-----BEGIN " in head and b"PRIVATE KEY-----" in head and not _is_code(path) else ""


def _is_code(path: str) -> bool:
    return path.endswith(_NOT_SECRET)


def _inside(path: str, root: str) -> str:
    return os.path.relpath(path, root).replace(os.sep, "/")
