"""A signal's handler that is left in place for one time, by `sysv_signal` of the C library, where it has that.

By what `ctypes` itself is made of: `ctypes` makes dozens of types, 200 KiB in every process that serves.
"""

from __future__ import annotations

from _ctypes import FUNCFLAG_CDECL, Array, CFuncPtr, _SimpleCData, dlopen, dlsym

__all__ = ["leave_once"]


class _Int(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "i"


class _Pointer(_SimpleCData):  # type: ignore[type-arg]
    _type_ = "P"


class _Action(Array):  # type: ignore[type-arg]
    """A `struct sigaction`, which is shorter; the handler comes first."""

    _type_ = _Pointer
    _length_ = 128


class _Function(CFuncPtr):
    _flags_ = FUNCFLAG_CDECL
    _restype_ = _Int


def leave_once(number: int) -> None:
    """Whatever handles that signal does so once; the next one ends the process. Raises OSError without such a way."""
    library = dlopen(None, 0)  # type: ignore[arg-type]  # all that is loaded
    action = _Action()
    if _Function(dlsym(library, "sigaction"))(number, None, action) == 0:
        _Function(dlsym(library, "sysv_signal"))(number, _Pointer(action[0]))
