"""Extensions of MCP: what an extension can add to a server, and the built-in ones.

Start reading in `base`, the interface of extensions. `builtin` is the table of those that every server has, and
`serving` their options for serving. `ui` is MCP Apps on the server's side; hosts are in `mcpd.apps`. `skills` serves
folders of instructions for models (SEP-2640), whose sources are in `mcpd.sources`. `tasks` lets calls of tools continue
after their answer. A server knows extensions by the interface only.
"""
