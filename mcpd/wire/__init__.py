"""Our own byte formats, without I/O: newline-delimited JSON and event streams."""
