"""MCP Apps on the server's side: the extension `io.modelcontextprotocol/ui`. The host's side is `mcpd.apps`.

Start reading in `extension`, which is loaded with every server. `apps` has the Views of one server and their
part in tools, `results` the data for them. `meta` and `csp_sources` check metadata; hosts use these too. `view` has the
kinds and options of the bundled pages of `view=`, and `pages` these pages as resources.
"""
