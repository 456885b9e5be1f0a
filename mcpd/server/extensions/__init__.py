"""Extensions of MCP: what an extension can add to a server, and the built-in ones, each in a package.

Start reading in `base`, the interface of extensions. `builtin` is the table of those that every server has, and
`serving` their options for serving. `ui` is MCP Apps on the server's side; hosts are in `mcpd.apps`. `skills` serves
folders of instructions for models. A server knows extensions by the interface only.
"""
