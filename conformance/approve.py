"""A user with a browser, for programs that open one: signs in at mcpd's own login pages, allows it, and goes on.

`approve.py URL` follows the redirect to the program that waits for it; `--print` prints where it leads instead. With
MCPD_LOGIN=name:password it fills in that form. It is what `xdg-open` is to be where nobody sits.
"""

from __future__ import annotations

import html
import os
import re
import sys
from http.client import HTTPMessage
from http.cookiejar import CookieJar
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, HTTPRedirectHandler, ProxyHandler, Request, build_opener


class _Here(HTTPRedirectHandler):
    """Follows redirects on the pages' own origin alone."""

    origin = ""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        return super().redirect_request(req, fp, code, msg, headers, newurl) if _origin(newurl) == self.origin else None


def _origin(url: str) -> str:
    return "/".join(url.split("/")[:3])


class Browser:
    """Keeps cookies, and reads forms."""

    def __init__(self, url: str) -> None:
        here = _Here()
        here.origin = _origin(url)
        self._opener: Any = build_opener(HTTPCookieProcessor(CookieJar()), ProxyHandler({}), here)
        self.url = url

    def get(self, url: str, fields: dict[str, str] | None = None) -> str:
        """The text of a page; where a redirect leads if that is elsewhere."""
        headers = {"Accept": "text/html", "Origin": _origin(self.url)} if fields else {"Accept": "text/html"}
        data = urlencode(fields).encode() if fields else None
        try:
            with self._opener.open(Request(urljoin(self.url, url), data, headers), timeout=30) as answer:
                return str(answer.read().decode())
        except HTTPError as error:
            with error:
                if error.code in (302, 303):
                    return str(error.headers["Location"])
                raise SystemExit(f"{url}: {error.code} {error.read().decode()}") from None


def approve(url: str, login: str = "") -> str:
    """Where the browser is sent when all is allowed."""
    browser = Browser(url)
    page = browser.get(url)
    if not page.startswith("<"):
        return page  # a refusal, which the program is told
    name, _, password = login.partition(":")
    if 'type="password"' in page:
        page = browser.get(_action(page, "/oauth/sign-in"), {**_hidden(page), "user": name, "password": password})
    if not page.startswith("<"):
        return page
    return browser.get(_action(page, "/oauth/consent"), {**_hidden(page), "choice": "allow"})


def _action(page: str, path: str) -> str:
    """Where a form is sent: to this path, below wherever the application is mounted."""
    found = re.search(rf'action="([^"]*{path})"', page)
    return html.unescape(found[1]) if found else path


def _hidden(page: str) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)
    return {name: html.unescape(value) for name, value in found}


if __name__ == "__main__":
    target = approve(next(word for word in sys.argv[1:] if word.startswith("http")), os.environ.get("MCPD_LOGIN", ""))
    if "--print" in sys.argv:
        print(target)
    else:
        build_opener(ProxyHandler({})).open(target, timeout=30).close()
