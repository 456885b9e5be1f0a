"""Which files of a folder go into a bundle: all that others may have, and nothing that was only ever meant for here."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase

from msgspec import Struct

from mcpd.errors import ConfigurationError

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


class Selection(Struct, frozen=True):
    """Which files below a folder are taken; patterns are of names, or of paths below it."""

    code: frozenset[str] | None = None
    """The Python files and packages that are taken; None for all."""
    has_data: bool = True
    """Whether files that are not Python are taken."""
    ignored: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    """What is taken although it is hidden, ignored, not imported, or looks like a secret."""
    excluded: tuple[str, ...] = ()

    def why_not(self, inside: str, path: str, *, is_folder: bool = False) -> str:
        """Why this file or folder is not taken; "" if it is."""
        name = os.path.basename(path)
        if is_meant(inside, name, self.excluded):
            return "excluded"
        if is_meant(inside, name, self.included) or any(_is_below(inside, one) for one in self.included):
            return ""
        if is_folder and any(_is_below(one.strip("/"), inside) for one in self.included):
            return ""  # something in it is included
        if why := _why_not(inside, name):
            return why
        if is_meant(inside, name, self.ignored):
            return f"named in {IGNORE}"
        if is_folder and self.code is not None and os.path.isfile(os.path.join(path, "mcpd.toml")):
            has_code = any(one.startswith(path + os.sep) for one in self.code)
            return "" if has_code else "another server; --include takes it"
        if is_folder or self.code is None or any(path == one or path.startswith(one + os.sep) for one in self.code):
            return ""
        if path.endswith(".py"):
            return "not imported by the server; --include takes it"

        return "" if self.has_data else "in a folder with files of all kinds; --include takes it"


def collect(root: str, selection: Selection | None = None) -> Collected:
    """The files below a folder that a bundle takes. Raises ConfigurationError if they are too many or too large."""
    found = Collected({}, {})
    selection = selection or Selection()
    for folder, names, files in os.walk(root):
        for name in sorted(names):
            path = os.path.join(folder, name)
            inside = _inside(path, root)
            why = selection.why_not(inside, path, is_folder=True) or _why_no_folder(path, root)
            if not why and not selection.has_data and not _may_hold(path, inside, selection):
                why = "in a folder with files of all kinds; --include takes it"
            if why:
                found.left_out[f"{inside}/"] = why
                names.remove(name)
        names.sort()
        for name in sorted(files):
            _take(os.path.join(folder, name), root, selection, found)

    return found


def _may_hold(path: str, inside: str, selection: Selection) -> bool:
    """Whether a folder has code of the server, or something that is included."""
    for one in selection.code or ():
        if one == path or one.startswith(path + os.sep) or path.startswith(one + os.sep):
            return True
    patterns = selection.included
    return any("/" not in one or _is_below(one.strip("/"), inside) or _is_below(inside, one) for one in patterns)


def ignored_here(root: str) -> tuple[str, ...]:
    """The patterns of a folder's own file."""
    try:
        with open(os.path.join(root, IGNORE), encoding="utf-8-sig") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError):
        return ()

    return tuple(line for line in lines if line and not line.startswith("#"))


def _take(path: str, root: str, selection: Selection, found: Collected) -> None:
    inside = _inside(path, root)
    why = selection.why_not(inside, path) or _why_no_file(path, root)
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


def _why_not(inside: str, name: str) -> str:
    """Why nothing of this name is taken unless it is asked for; "" if it is."""
    if name.startswith("."):
        return "hidden"
    if any(fnmatchcase(name, pattern) for pattern in _LITTER):
        return "not part of the server"
    if not name.endswith(_NOT_SECRET) and any(fnmatchcase(name.lower(), pattern) for pattern in _SECRETS):
        return "may be a secret"

    return ""


def is_meant(inside: str, name: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of these patterns is of this name or, if it has a slash, of this path below the folder."""
    for pattern in patterns:
        bare = pattern.strip("/")
        if fnmatchcase(inside, bare) if "/" in bare or pattern.startswith("/") else fnmatchcase(name, bare):
            return True

    return False


def _is_below(inside: str, folder: str) -> bool:
    return inside.startswith(folder.strip("/") + "/")


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
