"""MCP Apps for hosts: show the pages that come with a server's tools, preview them, and test them.

`host` is for programs that show apps, `preview` is the command `mcpd preview`, and `verdict` is `mcpd apps test`. Both
commands use the host. `tool_metadata` reads what a tool declares about its app. How a server offers apps is in
`mcpd.server.extensions.ui`. Start with `host`.
"""
