"""Views that come with mcpd: `@server.tool(view="table")` shows results without any HTML of the author's.

    view     what authors write: the kind and its options
    pages    a page, put together of the files in assets/views
    entry    the page of one kind, or of one tool, as a resource of the catalog
    fits     whether a kind can show what a tool gives, for `mcpd check`

Loaded by the first tool that has one.
"""

from __future__ import annotations

__all__: list[str] = []
