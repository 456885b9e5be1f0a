"""Imports the Python files of a folder, each within a time limit.

Theory of operation. The folder becomes a package of its own, `_mcpd_folder_1`. Files in different folders may therefore
have the same name, and a file called `calendar.py` does not replace Python's module. Files import each other by
relative imports, or by their plain names if no other module has that name: `_PlainNames` is the last finder, answers
only for files of its folder, and returns the same module, so that there is only one copy. An import runs in a thread,
which is abandoned when its time is up. Output, new threads and errors are reported.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.machinery import ModuleSpec
from itertools import count
from types import ModuleType, TracebackType
from typing import Any, NoReturn, TypeAlias

from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.printable import printable
from mcpd.server import Server
from .files import Report, Stamp, stamp_of

_numbers = count(1)
_MAX_HEADER_BYTES = 1024 * 1024

Stamps: TypeAlias = dict[str, tuple[str, Stamp | None]]
"""Maps the names of modules to their files and the stamp of each file; None means that the file was deleted."""


class FolderPackage:
    def __init__(self, root: str, plain_from: Sequence[str]) -> None:
        """Files in the folders `plain_from` can also be imported by their plain names."""
        self.root = root
        self.name = f"_mcpd_folder_{next(_numbers)}"
        package = ModuleType(self.name, "The files of a folder that is served.")
        package.__path__ = [root]
        sys.modules[self.name] = package
        self._plain_names = _PlainNames(self.name, root, plain_from)
        sys.meta_path.append(self._plain_names)

    def stamps(self) -> Stamps:
        found: Stamps = {}
        for name, module in list(sys.modules.items()):
            if name.startswith(f"{self.name}."):
                path = getattr(module, "__file__", None) or ""
                found[name] = path, stamp_of(path)
        return found

    def changed(self, stamps: Stamps) -> list[str]:
        now = self.stamps()
        return [path for name, (path, stamp) in stamps.items() if now.get(name, (path, None)) != (path, stamp)]

    def adopt(self, other: FolderPackage, names: Iterable[str]) -> None:
        """Use these modules of another package as if they had been loaded in this one."""
        for name in names:
            if name in sys.modules:
                sys.modules[self.name + name.removeprefix(other.name)] = sys.modules[name]

    def close(self) -> None:
        sys.meta_path.remove(self._plain_names)
        for name in [name for name in sys.modules if name == self.name or name.startswith(f"{self.name}.")]:
            del sys.modules[name]

    def load(self, path: str, seconds: float, report: Report, instead: str = "it is left out") -> ModuleType | None:
        """Return the module of a file, or None after reporting why not; `instead` says what happens to the file."""
        parts = os.path.splitext(os.path.relpath(path, self.root))[0].split(os.sep)
        if any("." in part for part in parts):
            report.error(path, "a Python file's name may contain only the dot of .py; rename it")
            return None

        work = _Import(".".join((self.name, *parts)))
        before = set(threading.enumerate())
        output: Any = _CapturedOutput(sys.stdout or sys.stderr)
        with _no_serving(), _without_bytecode(), redirect_stdout(output):
            work.run(seconds)
        self._plain_names.forget()
        if output.text:
            report.warning(path, f"prints on import: {output.text.strip()[:80]!r}; move this into a function")
        started = [one for one in threading.enumerate() if one not in before and one is not work.thread]
        if started and work.is_done:
            names = ", ".join(printable(one.name, 40) for one in started[:3])
            report.warning(path, f"starts threads on import ({names}); start and stop them in lifespan.py")

        if not work.is_done:
            line = work.line_in(path)
            work.stop()
            text = f"its import took longer than {seconds:g} seconds; {instead}"
            report.error(path, f"{text} (increase tools.import-timeout in mcpd.toml to allow more)", line)
            return None

        if work.error is not None:
            line, text = _describe_error(work.error, path, self.root)
            report.error(path, f"{text}; {instead}", line)
            return None

        if work.module is not None and (problem := spawn_problem(work.module, _REMEDY)):
            report.warning(path, problem)
        return work.module


_REMEDY = "move its functions into an installed package, or serve a single file"


def spawn_problem(module: ModuleType, remedy: str) -> str | None:
    """Return why child processes of `multiprocessing` cannot run functions of this module, or None."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None:
        return None
    homes = ("multiprocessing", "concurrent.futures.process")
    uses_it = any(
        value is multiprocessing or str(getattr(value, "__module__", "")).startswith(homes)
        for value in vars(module).values()
    )
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    if not uses_it or method == "fork":
        return None
    return (
        f"multiprocessing starts child processes with {method!r}, and these cannot import this file, so a pool waits "
        f'forever; {remedy}, or use multiprocessing.get_context("fork")'
    )


class _Import:
    """One import in a thread, which is abandoned if it does not end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.module: ModuleType | None = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._import, name="mcpd-import", daemon=True)

    def run(self, seconds: float) -> None:
        self.thread.start()
        self.thread.join(seconds)

    @property
    def is_done(self) -> bool:
        return not self.thread.is_alive()

    def line_in(self, path: str) -> int | None:
        """Return the line of that file which is being executed."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        while frame is not None:
            if frame.f_code.co_filename == path:
                return frame.f_lineno
            frame = frame.f_back
        return None

    def stop(self) -> None:
        # A thread that waits in a system call keeps waiting. Under a debugger or a coverage tool, nothing is stopped:
        # in CPython 3.11, a traced thread spins forever while an exception is pending for another one in a system call.
        if sys.gettrace() is not None:
            return
        import ctypes

        ident = ctypes.c_ulong(self.thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_ImportTimeout))
        self.thread.join(0.2)

    def _import(self) -> None:
        try:
            self.module = import_module(self._name)
        except BaseException as error:
            self.error = error


class _ImportTimeout(BaseException):
    """Raised in the thread of an import whose time is up."""


# -- what a file does while it is imported ----------------------------------------------------


@contextmanager
def _without_bytecode() -> Iterator[None]:
    # Disable bytecode files: with their times in seconds, Python would miss a second edit within a second.
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


@contextmanager
def _no_serving() -> Iterator[None]:
    # Make `Server.run` raise: a file that serves on import would never finish importing.
    serve = Server.run
    Server.run = _refuse_to_run  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Server.run = serve  # type: ignore[method-assign]


def _refuse_to_run(server: Server, **_: Any) -> NoReturn:
    raise ConfigurationError(
        "it calls Server.run(); in tools/, remove that call: the functions are the tools. "
        "To serve a file with a server, run mcpd serve server.py"
    )


class _CapturedOutput:
    """Replaces stdout, passes everything on, and keeps the beginning."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.text = ""

    def write(self, text: str) -> int:
        if len(self.text) < 200:
            self.text += str(text)
        self._stream.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


# -- errors in words --------------------------------------------------------------------------


def _describe_error(error: BaseException, path: str, root: str) -> tuple[int | None, str]:
    # Return the line at which an error occurred and a description of the error.
    line, deeper = _line(error.__traceback__, path, root)
    if isinstance(error, SyntaxError):
        if error.filename == path:
            line = error.lineno
        elif error.filename:
            deeper = f" ({os.path.relpath(error.filename, root)}, line {error.lineno})"
        return line, f"{type(error).__name__}: {error.msg}{deeper}"

    if isinstance(error, SystemExit):
        return line, f"it exits on import (exit {error.code}){deeper}"
    if isinstance(error, ModuleNotFoundError):
        missing = printable(error.name or "")
        advice = f"install it for mcpd: {sys.executable} -m pip install …"
        if _has_header(path):
            advice = "restart mcpd if you added it to the # /// script header"
        return line, f"no module {missing!r}{deeper}; {advice}"
    name = type(error).__name__
    text = str(error) if isinstance(error, McpdError) else f"{name}: {error}" if str(error) else name
    return line, text + deeper


def _has_header(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"\n# /// script" in b"\n" + file.read(_MAX_HEADER_BYTES)
    except OSError:
        return False


def _line(trace: TracebackType | None, path: str, root: str) -> tuple[int | None, str]:
    # Return the line in a file, and ` (other.py, line 3)` if the error occurred in another file of the folder.
    line, deeper = None, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == path:
            line, deeper = trace.tb_lineno, ""
        elif name.startswith(os.path.join(root, "")):
            deeper = f" ({os.path.relpath(name, root)}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return line, deeper


# -- neighbours -------------------------------------------------------------------------------


class _PlainNames:
    """A finder for files of a folder by their plain names, used for imports in that folder which fail otherwise."""

    def __init__(self, package: str, root: str, folders: Sequence[str]) -> None:
        self._package = package
        self._root = root
        self._folders = folders
        self._given: set[str] = set()

    def forget(self) -> None:
        # Another folder may use the same plain names.
        while self._given:
            name = self._given.pop()
            module = sys.modules.get(name)
            if module is not None and (getattr(module, "__file__", None) or "").startswith(self._root):
                del sys.modules[name]

    def _is_import_from_package(self) -> bool:
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        name: str = frame.f_globals.get("__name__", "")
        return name.startswith(f"{self._package}.")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or "." in fullname or not self._is_import_from_package():
            return None
        for folder in self._folders:
            place = os.path.join(folder, fullname)
            if os.path.isfile(f"{place}.py") or os.path.isfile(os.path.join(place, "__init__.py")):
                self._given.add(fullname)
                parts = os.path.relpath(place, self._root).split(os.sep)
                alias: Any = _Alias(".".join((self._package, *parts)))  # importlib.abc would slow down the start
                return ModuleSpec(fullname, alias)
        return None


class _Alias:
    """A loader that returns a module already imported under another name."""

    def __init__(self, real: str) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None: `exec_module` replaces the new module."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(self._real)
