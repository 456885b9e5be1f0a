"""Readers: from the bytes of one file to its `Page`. Each kind has a module; none opens another file."""
