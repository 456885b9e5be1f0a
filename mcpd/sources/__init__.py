"""Sources of tools, resources and prompts other than decorators. Today: the built-in starter."""
