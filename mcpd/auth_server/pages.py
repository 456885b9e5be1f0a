"""The pages that people see: HTML without scripts, with one style, in light and dark.

All that came from others is escaped. AUTH-136, AUTH-138. Spec: security best practices; CSP level 3.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape

from mcpd.auth_server.replies import NO_STORE
from mcpd.server.registry.routes import RouteResponse

_STYLE = """
:root { color-scheme: light dark; --line: #8a8f98; --soft: #f2f3f5; --ink: #1c1e21; --paper: #fff; --act: #0b57d0;
  --on-act: #fff; --warn: #8a4b00; --warn-soft: #fff4e0; }
@media (prefers-color-scheme: dark) { :root { --line: #7d838c; --soft: #26292e; --ink: #e8eaed; --paper: #17191c;
  --act: #a8c7fa; --on-act: #062e6f; --warn: #ffd9a0; --warn-soft: #3a2a10; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.5 sans-serif; }
main { max-width: 30rem; margin: 0 auto; padding: 2rem 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 1rem 0; padding: 1rem;
  background: var(--soft); border-radius: .5rem; }
dt { font-weight: 600; } dd { margin: 0; }
label { display: block; font-weight: 600; margin: 1rem 0 .25rem; }
input { width: 100%; font: inherit; padding: .6rem; border: 1px solid var(--line); border-radius: .4rem;
  background: var(--paper); color: var(--ink); }
button { font: inherit; font-weight: 600; min-height: 2.75rem; padding: .5rem 1.25rem; margin: 1.25rem .5rem 0 0;
  border: 1px solid var(--act); border-radius: .4rem; background: var(--paper); color: var(--act); cursor: pointer; }
button.first { background: var(--act); color: var(--on-act); }
:focus-visible { outline: 3px solid var(--act); outline-offset: 2px; }
.warning { padding: .75rem 1rem; border-radius: .5rem; background: var(--warn-soft); color: var(--warn); }
"""
_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_FIXED = (
    ("X-Frame-Options", "DENY"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
    *NO_STORE,
)


def _page(
    title: str, body: str, status: int, referrer: str, *headers: tuple[str, str], has_forms: bool = False
) -> RouteResponse:
    html = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )
    # Chromium holds each redirect behind a form to `form-action`, and where those end nobody knows beforehand: Claude's
    # https callback leads on to claude://, a provider to the company's own. There is nothing in these pages that could
    # point a form elsewhere: no script, and all that came from others is text.
    policy = f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'; base-uri 'none'"
    if not has_forms:
        policy += "; form-action 'none'"
    fields = (("Content-Security-Policy", policy), ("Referrer-Policy", referrer), *_FIXED, *headers)
    return RouteResponse(html.encode(), status, fields, "text/html; charset=utf-8")


def message_page(title: str, text: str, status: int = 400, url: str = "", label: str = "") -> RouteResponse:
    """A page with a heading and a sentence, and nothing to do on it but to follow a link, if there is one."""
    link = f'\n<p><a rel="noreferrer" href="{escape(url)}">{escape(label)}</a></p>' if url else ""
    return _page(title, f'<p role="alert">{escape(text)}</p>{link}', status, "no-referrer")


def form_page(title: str, body: str, *headers: tuple[str, str], status: int = 200) -> RouteResponse:
    """A page with forms, whose answers may lead anywhere.

    It says nothing to other sites about where one came from. To ourselves it does: a browser that told nobody would
    send `Origin: null` with the form, which is what a form of a stranger's sends.
    """
    return _page(title, body, status, "same-origin", *headers, has_forms=True)


def facts(rows: Mapping[str, str]) -> str:
    """Names and values that people should look at."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows.items()) + "</dl>"


def warning(text: str) -> str:
    """A sentence that stands out."""
    return f'<p class="warning" role="note">{escape(text)}</p>'


def hidden(fields: Mapping[str, str]) -> str:
    """What a form carries."""
    return "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in fields.items()
    )


def field(name: str, label: str, kind: str = "text", autocomplete: str = "off", value: str = "") -> str:
    """One field with its label."""
    return (
        f'<label for="{escape(name)}">{escape(label)}</label>'
        f'<input id="{escape(name)}" name="{escape(name)}" type="{kind}" autocomplete="{autocomplete}" '
        f'value="{escape(value)}" maxlength="1024" required autocapitalize="none" spellcheck="false">'
    )


def button(text: str, name: str = "", value: str = "", *, is_first: bool = False) -> str:
    """What sends a form."""
    said = f' name="{escape(name)}" value="{escape(value)}"' if name else ""
    look = ' class="first"' if is_first else ""
    return f'<button type="submit"{said}{look}>{escape(text)}</button>'


def form(action: str, content: str) -> str:
    """A form that is posted to a path of ours."""
    return f'<form method="post" action="{escape(action)}">{content}</form>'
