"""A verdict on a server's apps: what would not work in a strict host, found before a user does.

    report        what was found: checks with findings, as an object and as JSON
    junit         the same for CI systems
    options       what one can say about how apps are tried
    run           all of it; begin here
      gathering     what a server says of its apps
      metadata      is that right: links, types, visibility, permissions
      document      an app's HTML: is it whole, what does it load
        markup        its elements; `css` and `script` read those, `sources` knows what a policy lets through
      calling       the call that an app is opened for; `arguments` makes some up
    finding_browsers a Chromium on this machine

Imports the browser's driver only where an app is to be shown.
"""

from __future__ import annotations

__all__: list[str] = []
