"""Where offerings come from besides decorators: the built-in starter, folders, documents."""
