"""To be written: what belongs here, what does not, where to start reading."""
