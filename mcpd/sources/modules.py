"""Imports the Python files of a folder, one after another, each within a limit of time.

Theory of operation. The folder becomes a package of its own, `_mcpd_folder_1`, so that files of two folders may have
the same name and a file called `calendar.py` does not stand in for Python's. Inside, a file reaches its neighbours by
relative imports, and by plain names too where nothing else has that name: `_Neighbours` is asked last, answers files
of its own folder only, and gives the same module, so that there is one of each. An import runs in a thread, which is
given up after its time; what it prints, what it starts and how it ends is reported.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from itertools import count
from types import ModuleType, TracebackType
from typing import Any, NoReturn, TypeAlias

from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.printable import printable
from mcpd.server import Server
from mcpd.sources.files import Report

_numbers = count(1)
_MOST_HEADER_BYTES = 1024 * 1024

Stamps: TypeAlias = dict[str, tuple[str, tuple[int, int] | None]]
"""By the name of a module its file, and the size and time of that."""


class FolderPackage:
    """The Python files of one folder, as a package."""

    def __init__(self, root: str, plain_from: Sequence[str]) -> None:
        """Files in the folders `plain_from` are found by their plain names too."""
        self.root = root
        self.name = f"_mcpd_folder_{next(_numbers)}"
        package = ModuleType(self.name, "The files of a folder that is served.")
        package.__path__ = [root]
        sys.modules[self.name] = package
        self._neighbours = _Neighbours(self.name, root, plain_from)
        sys.meta_path.append(self._neighbours)

    def stamps(self) -> Stamps:
        """Which files its modules were loaded from, and what those are like now; None for one that is gone."""
        found: Stamps = {}
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if name.startswith(f"{self.name}.") and path is not None:
                try:
                    now = os.stat(path)
                    found[name] = path, (now.st_size, now.st_mtime_ns)
                except OSError:
                    found[name] = path, None
            elif name.startswith(f"{self.name}."):
                found[name] = "", None
        return found

    def changed(self, stamps: Stamps) -> list[str]:
        """The files of which these stamps are not true any more."""
        now = self.stamps()
        return [path for name, (path, stamp) in stamps.items() if now.get(name, (path, None)) != (path, stamp)]

    def adopt(self, other: FolderPackage, names: Iterable[str]) -> None:
        """Have these modules of another package as if they had been loaded here."""
        for name in names:
            if name in sys.modules:
                sys.modules[self.name + name.removeprefix(other.name)] = sys.modules[name]

    def close(self) -> None:
        """Forget its modules: nothing that they have is used any more."""
        sys.meta_path.remove(self._neighbours)
        for name in [name for name in sys.modules if name == self.name or name.startswith(f"{self.name}.")]:
            del sys.modules[name]

    def load(self, path: str, seconds: float, report: Report, instead: str = "it is left out") -> ModuleType | None:
        """The module of a file below the folder; None if it could not be imported, which is reported.

        `instead` says what becomes of the file then.
        """
        parts = os.path.splitext(os.path.relpath(path, self.root))[0].split(os.sep)
        if any("." in part for part in parts):
            report.error(path, "a Python file's name has no dot but that of .py; rename it")
            return None

        work = _Import(".".join((self.name, *parts)))
        before = set(threading.enumerate())
        with _no_serving(), _without_bytecode(), _listening() as heard:
            work.run(seconds)
        self._neighbours.forget()
        if heard.text:
            report.warning(path, f"prints while it is imported: {heard.text.strip()[:80]!r}; put that into a function")
        started = [one for one in threading.enumerate() if one not in before and one is not work.thread]
        if started and work.is_done:
            names = ", ".join(printable(one.name, 40) for one in started[:3])
            report.warning(
                path, f"starts threads while it is imported ({names}); start them in lifespan.py, which also ends them"
            )

        if not work.is_done:
            line = work.line_in(path)
            work.stop()
            text = f"its import did not end within {seconds:g} seconds; {instead}"
            report.error(path, f"{text} (tools.import-timeout in mcpd.toml allows more)", line)
            return None
        if work.error is not None:
            line, text = _told(work.error, path, self.root)
            report.error(path, f"{text}; {instead}", line)
            return None
        if work.module is not None and (problem := spawn_problem(work.module, _OUTSIDE)):
            report.warning(path, problem)
        return work.module


_OUTSIDE = "move its functions into an installed package, or serve a single file"


def spawn_problem(module: ModuleType, remedy: str) -> str | None:
    """Why child processes of `multiprocessing` cannot run functions of a module that has no importable name."""
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
    """One import, in a thread of its own: what never comes back is left behind."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.module: ModuleType | None = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._import, name="mcpd-import", daemon=True)
        self._done = threading.Event()

    def run(self, seconds: float) -> None:
        """Begin, and wait for so long."""
        self.thread.start()
        if self._done.wait(seconds):
            self.thread.join()

    @property
    def is_done(self) -> bool:
        """Whether it came to an end, one way or the other."""
        return self._done.is_set()

    def line_in(self, path: str) -> int | None:
        """Which line of that file it is at."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        while frame is not None:
            if frame.f_code.co_filename == path:
                return frame.f_lineno
            frame = frame.f_back
        return None

    def stop(self) -> None:
        """End it, if it is in Python code; what waits in the system is left to wait.

        Under a debugger or a coverage tool it is left to run: in CPython 3.11 a thread that is traced spins for ever
        while an exception is on its way to another thread that waits in the system.
        """
        if sys.gettrace() is not None:
            return
        import ctypes

        ident = ctypes.c_ulong(self.thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_GivenUp))
        self.thread.join(0.2)

    def _import(self) -> None:
        try:
            self.module = import_module(self._name)
        except BaseException as error:
            self.error = error
        finally:
            self._done.set()


class _GivenUp(BaseException):
    """Raised in an import that has had its time."""


# -- what a file does while it is imported ----------------------------------------------------


@contextmanager
def _without_bytecode() -> Iterator[None]:
    """Python tells what it has compiled by seconds and size: of two edits in a second it would not see the other."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


@contextmanager
def _no_serving() -> Iterator[None]:
    """A file that serves itself when it is imported would never come back."""
    serve = Server.run
    Server.run = _refuse_to_run  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Server.run = serve  # type: ignore[method-assign]


def _refuse_to_run(server: Server, **_: Any) -> NoReturn:
    raise ConfigurationError(
        "it calls run() of a server; a file in tools/ needs none: its functions are the tools. "
        "A server of one file is served by its name: mcpd serve server.py"
    )


class _Heard:
    """Stands in for stdout, passes everything on, and keeps the beginning."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.text = ""

    def write(self, text: str) -> int:
        """As `TextIOBase.write`."""
        if len(self.text) < 200:
            self.text += str(text)
        self._stream.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _listening() -> Iterator[_Heard]:
    stream = sys.stdout
    heard = _Heard(stream if stream is not None else sys.stderr)
    sys.stdout = heard
    try:
        yield heard
    finally:
        if sys.stdout is heard:
            sys.stdout = stream


# -- errors in words --------------------------------------------------------------------------


def _told(error: BaseException, path: str, root: str) -> tuple[int | None, str]:
    """The line of a file at which an error came up, and what it is, in words."""
    line, deeper = _line(error.__traceback__, path, root)
    if isinstance(error, SyntaxError):
        what = f"{type(error).__name__}: {error.msg}"
        if error.filename == path:
            return error.lineno, what
        if error.filename:
            deeper = f" ({os.path.relpath(error.filename, root)}, line {error.lineno})"
        return line, what + deeper
    if isinstance(error, SystemExit):
        return line, f"it ends by itself while it is imported (exit {error.code}){deeper}"
    if isinstance(error, ModuleNotFoundError):
        missing = printable(error.name or "")
        if _has_header(path):
            return line, f"no module {missing!r}{deeper}; start mcpd again if it is in its # /// script header"
        return line, f"no module {missing!r}{deeper}; install it where mcpd runs: {sys.executable} -m pip install …"
    if isinstance(error, McpdError):
        return line, f"{error}{deeper}"
    text = str(error)
    return line, (f"{type(error).__name__}: {text}" if text else type(error).__name__) + deeper


def _has_header(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"\n# /// script" in b"\n" + file.read(_MOST_HEADER_BYTES)
    except OSError:
        return False


def _line(trace: TracebackType | None, path: str, root: str) -> tuple[int | None, str]:
    """The line in that file, and ` (other.py, line 3)` if it came up in another one of the folder."""
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


class _Neighbours:
    """Finds files of a folder by their plain names, for imports in that folder that find nothing else."""

    def __init__(self, package: str, root: str, folders: Sequence[str]) -> None:
        self._package = package
        self._root = root
        self._folders = folders
        self._given: set[str] = set()

    def forget(self) -> None:
        """Let another folder have the same plain names."""
        while self._given:
            name = self._given.pop()
            module = sys.modules.get(name)
            if module is not None and (getattr(module, "__file__", None) or "").startswith(self._root):
                del sys.modules[name]

    def _is_asked_by_its_own(self) -> bool:
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        name: str = frame.f_globals.get("__name__", "")
        return name.startswith(f"{self._package}.")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the import system asks."""
        if path is not None or "." in fullname or not self._is_asked_by_its_own():
            return None
        for folder in self._folders:
            place = os.path.join(folder, fullname)
            if os.path.isfile(f"{place}.py") or os.path.isfile(os.path.join(place, "__init__.py")):
                self._given.add(fullname)
                parts = os.path.relpath(place, self._root).split(os.sep)
                alias: Any = _Alias(".".join((self._package, *parts)))  # importlib.abc costs start-up
                return ModuleSpec(fullname, alias)
        return None


class _Alias:
    """Gives a module that has another name already."""

    def __init__(self, real: str) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> None:
        """As the import system asks: an ordinary one, which the real one replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the real one in its place."""
        sys.modules[module.__name__] = import_module(self._real)
