"""`mcpd preview`: shows the tools and apps of a server in a page, as a strict host would show them.

`preview` is the place to start: it combines a `session` with the server and the `front` for browsers. `methods` answers
the page in `assets/host`; `views` and `sandbox` show apps in frames of their own. The page is trusted
because it has the token of its address. Views, proxies and other pages are not. Rules for Views belong in `apps.host`.
"""
