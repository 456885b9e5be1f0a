"""Views that are part of mcpd: `@server.tool(view="table")` shows results without HTML of the author.

`view` has the kinds and their options, `pages` the pages as resources. It is loaded by the first tool that uses one.
"""
