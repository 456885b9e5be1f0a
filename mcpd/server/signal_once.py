"""A signal's handler that is left in place for one time, by `sysv_signal` of the C library, where it has that."""

from __future__ import annotations

import ctypes


def leave_once(number: int) -> None:
    """Whatever handles that signal does so once; the next one ends the process. Raises OSError without such a way."""
    library = ctypes.CDLL(None)  # all that is loaded
    action = (ctypes.c_void_p * 128)()  # a `struct sigaction`, which is shorter; the handler comes first
    if library.sigaction(number, None, action) == 0:
        library.sysv_signal(number, ctypes.c_void_p(action[0]))
