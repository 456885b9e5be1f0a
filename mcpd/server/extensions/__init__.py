"""Extensions of MCP: what one may declare, and the ones that come with mcpd, a package each."""
