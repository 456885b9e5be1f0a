"""One function per method of the specification: (catalog, exchange, params) -> result or coroutine.

They speak the newest vocabulary only. `table` names them all; `Server` binds them to its catalog.
"""
