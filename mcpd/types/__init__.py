"""The newest vocabulary (2026-07-28) as msgspec structs, a file per chapter of the specification.

Handlers, registries and the client speak these and nothing older; `versions` turns them into
older shapes by blanking what a version does not know (a blank field is not written).
An optional field is None when absent; UNSET stands where null is a value of its own.
"""
