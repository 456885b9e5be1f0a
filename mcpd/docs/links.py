"""Links of pages: which page of the same folder one leads to, and which addresses may be shown at all."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from mcpd.docs.names import shown

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SHOWN = re.compile(r"https?://[^\s/]", re.IGNORECASE)
_MOST = 2000


def is_shown(target: str) -> bool:
    """Whether an address leads to a site: http or https, with a host."""
    return len(target) <= _MOST and bool(_SHOWN.match(target)) and target.isprintable()


def names_of(paths: Iterable[str]) -> dict[str, str]:
    """The names that links have for pages: paths, and the addresses of a site, without numbers and suffix."""
    found: dict[str, str] = {}
    for path in paths:
        found.setdefault(_site_name(path), path)
    for path in paths:
        found[path] = path
    return found


def _site_name(path: str) -> str:
    parts = [shown(part) for part in path.split("/")]
    stem = parts[-1].rsplit(".", 1)[0]
    parts[-1] = stem
    if stem.lower() in ("index", "readme", "_index"):
        parts.pop()
    return "/".join(parts).lower() + "/"


def resolved(target: str, path: str, names: Mapping[str, str]) -> tuple[str, str] | None:
    """The page that a link on the page `path` leads to, and the anchor in it; None if it leads elsewhere.

    `names` is what `names_of` gives. Links that begin with `/` are taken from the top of the folder.
    """
    if len(target) > _MOST or _SCHEME.match(target) or target.startswith("//"):
        return None
    address, _, anchor = target.partition("#")
    address = unquote(address.partition("?")[0])
    if not address:
        return path, anchor
    bases = [""] if address.startswith("/") else [posixpath.dirname(path), path]
    for base in bases:
        joined = posixpath.normpath(posixpath.join(base, address.lstrip("/")))
        if joined.startswith(".."):
            continue
        for name in (joined, _site_name(joined), _site_name(joined + ".md")):
            if (found := names.get(name)) is not None:
                return found, anchor
    return None
