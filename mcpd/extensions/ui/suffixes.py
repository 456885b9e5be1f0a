"""Under which domains anybody may have a host: `*.com`, `*.co.uk` and `*.github.io` match whoever wants to be matched.

With the package publicsuffixlist (the extra `apps`) this is the Public Suffix List, as browsers have it. Without it
a rule and a short list say no to what is known best: names of one label, second levels such as `co.uk` under two-letter
countries, and large hosting services. That is no complete list: a wildcard under a suffix that it does not know passes.
Spec: https://publicsuffix.org/list; MCP Apps 2026-01-26, "Content Security Policy Enforcement", says nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

__all__ = ["is_public_suffix"]

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
_AMAZON = "amazonaws.com"


def is_public_suffix(domain: str) -> bool:
    """Whether anybody may have a host below this domain, which is in lower case and ASCII."""
    labels = domain.split(".")
    if len(labels) == 1 or _is_hosting(labels, domain):
        return True
    listed = _listed()
    if listed is not None:
        return listed(domain)
    return len(labels) == 2 and len(labels[1]) == 2 and labels[0] in _SECOND_LEVELS


def _is_hosting(labels: list[str], domain: str) -> bool:
    """A hosting service, or a region of Amazon's, all of which hold other people's hosts."""
    return domain in _HOSTING or labels[-2:] == _AMAZON.split(".")


@cache
def _listed() -> Callable[[str], bool] | None:
    """The Public Suffix List that is installed. Reading it takes a moment: done when the first wildcard is seen."""
    try:
        from publicsuffixlist import PublicSuffixList
    except ImportError:
        return None
    return PublicSuffixList().is_public
