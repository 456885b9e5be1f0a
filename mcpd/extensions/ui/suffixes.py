"""Public suffixes: domains under which anybody can register a host, such as `com`, `co.uk` and `github.io`.

A wildcard directly under one, as in `*.github.io`, would let in everybody. With the package publicsuffixlist (the
extra `apps`) this is the Public Suffix List, as browsers have it. Without it a rule and a short list refuse the best
known ones: names of one label, second levels such as `co.uk` under two-letter countries, and large hosting services.
That is no complete list: a wildcard under a suffix that it does not know passes.
Spec: https://publicsuffix.org/list; MCP Apps 2026-01-26, "Content Security Policy Enforcement", says nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache

_COMMON = """
ac asn bank co com ed edu firm gen go gob gov gouv govt gv id ind info int k12 lg ltd me med mil ne net nhs nic nom or
org plc police pro res sch web
"""
_HOSTS = """
amplifyapp.com appspot.com azureedge.net azurewebsites.net azurestaticapps.net blogspot.com cloudapp.net cloudfront.net
deno.dev duckdns.org firebaseapp.com fly.dev github.io gitlab.io glitch.me googleapis.com herokuapp.com hf.space loca.lt
netlify.app ngrok-free.app ngrok.app ngrok.dev ngrok.io nip.io onrender.com pages.dev r2.dev railway.app repl.co
replit.app replit.dev run.app sslip.io surge.sh trycloudflare.com ts.net vercel.app web.app windows.net workers.dev
"""
_SECOND_LEVELS = frozenset(_COMMON.split())
_HOSTING = frozenset(_HOSTS.split())
_ALL_HOSTING = ("amazonaws.com", "on.aws", "windows.net")
"""All names below these are other people's, however many labels they have."""


def is_public_suffix(domain: str) -> bool:
    """Whether anybody may have a host below this domain, at whatever depth; it is in lower case and ASCII."""
    labels = domain.split(".")
    if len(labels) == 1 or domain in _HOSTING or ".".join(labels[-2:]) in _ALL_HOSTING:
        return True
    listed = _listed()
    if listed is not None:
        return listed(domain)
    return len(labels) == 2 and len(labels[1]) == 2 and labels[0] in _SECOND_LEVELS


@cache
def _listed() -> Callable[[str], bool] | None:
    """The Public Suffix List that is installed. Reading it takes a moment: done when the first wildcard is seen."""
    try:
        from publicsuffixlist import PSLFILE, PublicSuffixList
    except ImportError:
        return None
    is_public = PublicSuffixList().is_public
    with open(PSLFILE, encoding="utf-8") as lines:
        parents = frozenset(_parents(lines))
    return lambda domain: domain in parents or is_public(domain)


def _parents(lines: Iterable[str]) -> Iterator[str]:
    """What stands above public suffixes, as `core.windows.net` above `blob.core.windows.net`: it matches both."""
    for line in lines:
        name = line.partition(" ")[0].strip().removeprefix("*.")
        if name.isascii() and not name.startswith(("//", "!")):
            for _ in range(name.count(".") - 1):
                name = name.partition(".")[2]
                yield name
