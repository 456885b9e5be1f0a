"""Our own byte formats, without I/O: newline-delimited JSON, event streams, headers that repeat
what a body says, and the ends of messages that are too large."""
