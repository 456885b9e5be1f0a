"""Control sockets: finds the running servers of this user, requests their status, and stops them.

The sockets are in a folder that only this user can read. A server elsewhere is asked over HTTP.
"""

from __future__ import annotations

import http.client
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec import MsgspecError
from msgspec.json import decode, encode

from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.printable import printable
from mcpd.transports.address import parse
from .http_thread import check_peer
from .report import Status

MOST_PATH_BYTES = 100
"""Bytes of the path of a socket: the limit of kernels is 108 or 104."""

_PREFIX, _SUFFIX = "control-", ".sock"


def folder_path() -> Path:
    """Return `$XDG_RUNTIME_DIR/mcpd`, or a folder of this user among the temporary files."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        return Path(runtime, "mcpd")
    return Path(os.environ.get("TMPDIR") or "/tmp", f"mcpd-{os.getuid()}")


def checked_folder(*, make: bool) -> Path | None:
    """Return the folder, which must belong to this user and not be a link; None if it does not exist.

    `make` creates it. Raises ConfigurationError if other users can access it: a socket in it could be anybody's.
    """
    folder = folder_path()
    try:
        if make:
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700, parents=False)
        status = os.lstat(folder)
    except OSError as error:
        if not make and isinstance(error, FileNotFoundError):
            return None
        raise ConfigurationError(f"{folder}: {error.strerror}; set XDG_RUNTIME_DIR to a folder of yours") from None

    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigurationError(
            f"{folder} is not a folder of yours with mode 0700, so its sockets are not trusted; "
            "remove it, or set XDG_RUNTIME_DIR to a folder of yours"
        )

    return folder


def control_path(folder: Path) -> str:
    """Return the path of this process's control socket. Raises ConfigurationError if it is too long."""
    path = str(folder / f"{_PREFIX}{os.getpid()}{_SUFFIX}")
    if len(os.fsencode(path)) > MOST_PATH_BYTES:
        raise ConfigurationError(
            f"{path} is too long for a socket; set XDG_RUNTIME_DIR to a folder with a shorter name"
        )
    return path


def control_sockets(folder: Path) -> dict[int, str]:
    """Return the control sockets by process id. The process may have ended."""
    paths: dict[int, str] = {}
    for entry in os.scandir(folder):
        number = entry.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        try:
            seen = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if number.isdecimal() and stat.S_ISSOCK(seen.st_mode) and seen.st_uid == os.getuid():
            paths[int(number)] = entry.path

    return dict(sorted(paths.items()))


_SECONDS = 5.0
_MOST_BYTES = 4 * 1024 * 1024


class Found(NamedTuple):
    """The running servers of this user."""

    servers: dict[int, tuple[str, Status]]
    """The path of the control socket and the status, by process id."""
    silent: list[int]
    """Processes with a control socket that do not respond, because they hang or are suspended."""


def running_servers() -> Found:
    """Return all servers with a control socket, and remove sockets of ended processes.

    Raises ConfigurationError if the folder of the sockets is not safe.
    """
    folder = checked_folder(make=False)
    found = Found({}, [])
    for pid, path in ({} if folder is None else control_sockets(folder)).items():
        try:
            found.servers[pid] = path, ask(path)
        except ConnectionRefusedError:
            with suppress(OSError):
                os.unlink(path)
        except TimeoutError:
            found.silent.append(pid)
        except (OSError, MsgspecError):
            continue  # it is ending, or is not a server of mcpd

    return found


def ask(path: str) -> Status:
    """Return the status of the server at a control socket. Raises OSError, or MsgspecError for a malformed response."""
    return decode(_request(path, "GET", "/statusz"), type=Status)


class NoStatus(McpdError):
    """The status of a server is not available; the message says why, and what to do."""


def status_at(address: str, token: str | None = None) -> Status:
    """Return the status of the server at `:PORT`, `HOST:PORT` or `http(s)://HOST:PORT`, by `GET /statusz`.

    Raises ConfigurationError for a malformed address, and NoStatus if the status is not available.
    """
    connection = _connection(address)
    shown = printable(address)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        connection.request("GET", "/statusz", headers=headers)
        answer = connection.getresponse()
        body = answer.read(_MOST_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        text = f"{shown} does not respond: {printable(error)}; use the address of the server's --metrics option"
        raise NoStatus(text) from None
    finally:
        connection.close()

    if answer.status == 401:
        what = "a token" if token is None else "another token"
        raise NoStatus(f"{shown} requires {what}: use --token-file FILE, or set MCPD_TOKEN")

    try:
        return decode(body, type=Status)
    except (MsgspecError, UnicodeDecodeError):
        text = f"{shown} has no /statusz ({answer.status}); serve with --metrics ADDR, or --metrics http beside --http"
        raise NoStatus(text) from None


def _connection(address: str) -> http.client.HTTPConnection:
    if "://" not in address:
        parsed = parse(address)
        if parsed.path:
            raise ConfigurationError(f"{printable(address)}: use the address of the server's --metrics option")
        return http.client.HTTPConnection(parsed.host or "127.0.0.1", parsed.port, timeout=_SECONDS)

    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None

    if not host or parts.scheme not in ("http", "https"):
        raise ConfigurationError(f"{printable(address)}: expected :PORT, HOST:PORT or http(s)://HOST:PORT")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(host, port, timeout=_SECONDS)


def stop(path: str, pid: int, seconds: float) -> bool:
    """Stop a server, and wait up to `seconds` for its end. Returns whether it has ended. Raises OSError."""
    _request(path, "POST", "/stop")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not os.path.exists(path) and not _runs(pid):
            return True
        time.sleep(0.05)
    return False


def ask_events(path: str, what: str, given: object = None) -> Any:
    """Return the answer of the server at a control socket to `mcpd events`.

    Raises OSError, and NoStatus if the server refuses it.
    """
    head, body = _answer(path, "POST", f"/events/{what}", encode({} if given is None else given))
    if not head.startswith(b"HTTP/1.1 200 "):
        raise NoStatus(printable(body.decode(errors="replace"), 1000))
    return decode(body)


def _request(path: str, method: str, what: str) -> bytes:
    head, body = _answer(path, method, what)
    if not head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 202 ")):
        raise OSError("no answer")
    return body


def _answer(path: str, method: str, what: str, content: bytes = b"") -> tuple[bytes, bytes]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
        connected.settimeout(_SECONDS)
        connected.connect(path)
        if not check_peer(connected):
            raise ConfigurationError(f"{path} belongs to another user, so no request is sent to it")
        first = f"{method} {what} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n"
        connected.sendall(first.encode() + content)
        answer = bytearray()
        while len(answer) <= _MOST_BYTES and (read := connected.recv(65536)):
            answer += read

    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    return head, body


def _runs(pid: int) -> bool:
    # Whether a process is running, and not a zombie.
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return False
    except OSError:
        return False

    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass

    return True
