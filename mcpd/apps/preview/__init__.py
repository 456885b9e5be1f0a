"""`mcpd preview`: a server's tools and apps in a page, shown as a strict host would show them.

    preview     all of it, put together
    origins     names and addresses of the page, of each View's proxy and of its guest
    listeners   the two ports: the page with its API, and the sandbox
    page_files  the page's own files, with their policy
    sandbox     the documents of proxies and guests, each given once, and the reports of what their policy blocked
    api         JSON-RPC over the page's WebSocket: who may connect, requests both ways
    methods     the requests of the page, one function each
    messages    their params and results
    lists       the server's lists, each entry as it came
    session     the server behind it: the `Host`, connected to anew when the user wants that
    views       the Views of one page, from their frames to their end
    events      what happened to a View, as the page is told
    asks        what the user is asked: by the server, and by Views
    quirks      what other hosts do wrong, switched on for one View
    trace       every message of all three parties, within bounds
    violations  what a policy blocked, and what would have to be declared
    reload      a changed document or tool makes the Views stale that show it

A page is trusted with the token that it was opened with; a View, its proxy and every other page with nothing.
"""

from __future__ import annotations

__all__: list[str] = []
