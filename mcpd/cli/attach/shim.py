"""The process that a host starts: it hands its descriptors to the daemon, and then only waits to be stopped.

It costs a host about 10 ms and 0.1 MB: it imports nothing that Python has not loaded anyway but `_socket` and `fcntl`
(`socket` would load `enum` and `selectors`), and becomes a shell that waits for the daemon or for a signal. Messages
do not pass through it. If it cannot attach, it returns, and `mcpd serve` serves the client itself.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Mapping, Sequence

STARTED_FOR = "_MCPD_ATTACHED"
"""The environment variable of a daemon; its value is the path of the socket on which it is expected."""

READY_DESCRIPTOR = 3
"""The descriptor on which a daemon reports the path of its socket once it listens."""

GREETING = b"mcpd attach 1\n"
MOST_GREETING_BYTES = 1024 * 1024
ACCEPTED = b"+"

_START_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_MOST_ATTEMPTS = 5
# Kernels limit the path of a socket to 107 or 103 bytes.
_MOST_PATH_BYTES = 100

# Variables that differ from one shell, window or service to the next, and that no server reads.
_IGNORED = frozenset((
    "_", "SHLVL", "OLDPWD", "PWD", "COLUMNS", "LINES", "WINDOWID", "WINDOW", "INVOCATION_ID", "JOURNAL_STREAM",
    "GPG_TTY", "STY", "TMUX", "TMUX_PANE", STARTED_FOR,
))  # fmt: skip
_IGNORED_BEGINNINGS = ("TERM", "SSH_")
_IGNORED_END = "SESSION_ID"

# Waits for the daemon's line, which is the exit code. The first empty line says that signals are passed on from now on,
# so that the daemon may begin to serve; each further one is a signal. A shell needs a tenth of Python's memory.
_WAIT = """trap 'echo >&3; again=1' TERM INT
echo >&3
while :; do again=; read -r code <&3 && exit "$code"; [ "$again" ] || exit 1; done"""


def is_wanted(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command line asks to be attached. MCPD_ATTACH=0 always wins."""
    if words[:1] != ["serve"] or STARTED_FOR in environment or not hasattr(os, "posix_spawn"):
        return False
    ours = words[: words.index("--")] if "--" in words else words
    switch = environment.get("MCPD_ATTACH", "").lower()
    if "--stdio" not in ours or switch in ("0", "false", "no", "off"):
        return False
    return "--attach" in ours or switch in ("1", "true", "yes", "on")


def attach() -> None:
    """Hand this process's client to a daemon, and never return; return if this process has to serve it.

    A line on stderr says why, unless stdin or stdout is a terminal or a file.
    """
    if not (_is_pipe(0) and _is_pipe(1)):
        return
    try:
        folder = _folder()
        for _ in range(_MOST_ATTEMPTS):
            # A daemon may write the rule when it starts.
            message = identity(read_rule(folder))
            path = socket_path(folder, message)
            control = _connect(path)
            if control is None:
                _start(path)
                continue
            answer = _hand_over(control, message)
            if answer == ACCEPTED:
                _wait(control)
            control.close()
            if answer:
                raise OSError(answer.decode("utf-8", "replace"))
            # Otherwise the daemon is about to end, because its code has changed or it had no clients.
        raise OSError("every daemon ended at once")
    except OSError as error:
        text = f"mcpd: this client is served without a daemon: {error.strerror or error}\n"
        os.write(2, text.encode("utf-8", "backslashreplace"))


def _is_pipe(descriptor: int) -> bool:
    # A terminal or a file shares its non-blocking flag with the shell, so it is never handed over.
    try:
        kind = os.fstat(descriptor).st_mode & 0o170000
    except OSError:
        return False
    return kind in (0o010000, 0o140000)


def _folder() -> str:
    # The same folder as `observe.control.folder_path`. A folder that others may write could have a socket of theirs.
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        folder = f"{runtime}/mcpd"
    else:
        folder = f"{os.environ.get('TMPDIR') or '/tmp'}/mcpd-{os.getuid()}"

    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass

    status = os.lstat(folder)
    if status.st_mode != 0o040700 or status.st_uid != os.getuid():
        raise OSError(f"{folder} is not a folder of yours with mode 0700, so its sockets are not trusted")
    return folder


# -- which daemon ------------------------------------------------------------------------------


def identity(rule: bytes | None) -> bytes:
    """The properties that a daemon shares with its clients: program, command line, folder and environment.

    `rule` is what the server's author has decided (`Attach`): the first line says whether the folder counts, the others
    name the variables that do, `*` all of them. None means that everything counts.
    """
    from mcpd import __version__

    words, has_place = _absolute(sys.orig_argv[1:])
    counts_folder, *names = ("cwd", "*") if rule is None else os.fsdecode(rule).split("\n")
    parts = [__version__, sys.version, sys.executable, sys.prefix, *words]
    if counts_folder or not has_place:
        parts.append(f"in {os.getcwd()}")
    if names == ["*"]:
        names = [name for name in os.environ if _counts(name)]
    parts += [f"{name}={os.environ[name]}" for name in sorted(names) if name in os.environ]
    return os.fsencode("\0".join(parts))


def name_of(identity: bytes) -> str:
    """The name of a daemon's files. Two identities may have the same name, so a daemon compares the whole."""
    return f"{int.from_bytes(identity, 'big') % (2**64 - 59):016x}"  # a prime


def rule_path(folder: str) -> str:
    """The file with the rule for this program and command line."""
    return f"{folder}/attach-{name_of(identity(b''))}.rule"


def read_rule(folder: str) -> bytes | None:
    """The rule that a daemon has written for its clients; None without one."""
    try:
        with open(rule_path(folder), "rb") as file:
            return file.read(65536)
    except FileNotFoundError:
        return None


def socket_path(folder: str, message: bytes) -> str:
    """The path of a daemon's socket. Raises OSError if it is too long."""
    path = f"{folder}/attach-{name_of(message)}.sock"
    if len(os.fsencode(path)) > _MOST_PATH_BYTES:
        raise OSError(f"{path} is too long for a socket; set XDG_RUNTIME_DIR to a folder with a shorter name")
    return path


def _absolute(words: Sequence[str]) -> tuple[list[str], bool]:
    # With files as absolute paths, and whether there are any beside the program itself.
    found, has_place = [], False
    for number, word in enumerate(words):
        place, colon, rest = word.rpartition(":") if ".py:" in word else (word, "", "")
        is_place = bool(place) and os.path.exists(place)
        found.append(f"{os.path.abspath(place)}{colon}{rest}" if is_place else word)
        has_place = has_place or (is_place and number > 0)
    return found, has_place


def _counts(name: str) -> bool:
    return name not in _IGNORED and not name.startswith(_IGNORED_BEGINNINGS) and not name.endswith(_IGNORED_END)


# -- talking to it -----------------------------------------------------------------------------


def _connect(path: str) -> socket | None:
    import _socket

    control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        if os.lstat(path).st_uid != os.getuid():
            raise OSError(f"{path} belongs to another user")
        control.connect(path)
    except OSError as error:
        control.close()
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
            return None
        raise

    return control


def _hand_over(control: socket, message: bytes) -> bytes:
    # Returns the daemon's answer: ACCEPTED, a reason, or nothing if it is ending.
    import _socket

    about = os.fsencode(f"{os.getpid()}\0{os.getcwd()}")
    data = b"%s%d %d\n%s%s" % (GREETING, len(message), len(about), message, about)
    if len(data) > MOST_GREETING_BYTES:
        raise OSError("the environment is too large to be compared")
    try:
        os.fstat(2)
    except OSError:  # closed: the next file would become stderr
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    rights = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))

    control.settimeout(_ANSWER_SECONDS)
    answer = b""
    try:
        sent = control.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        control.sendall(data[sent:])
        while answer != ACCEPTED and (part := control.recv(4096)):
            answer += part
    except (BrokenPipeError, ConnectionResetError):
        return b""
    except TimeoutError:
        raise OSError("the daemon does not answer") from None

    return answer


def _wait(control: socket) -> None:
    # Become the shell that waits. It keeps no pipe of the host, which then sees the end when the daemon closes it.
    control.setblocking(True)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(control.fileno(), READY_DESCRIPTOR)
    os.set_inheritable(READY_DESCRIPTOR, True)  # it may have had this number already
    for number in range(3):
        os.dup2(nothing, number)
    os.execv("/bin/sh", ("mcpd-attached", "-c", _WAIT))


def _start(path: str) -> None:
    # Start a daemon, unless another process does so at this moment. Raises OSError.
    import fcntl

    base = path.removesuffix(".sock")
    # The kernel frees the lock with its holder, so nothing stale is left behind.
    lock = os.open(f"{base}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        control = _connect(path)
        if control is not None:
            control.close()
        else:
            _spawn(path, f"{base}.log")
    finally:
        os.close(lock)


def _spawn(path: str, log: str) -> None:
    import _socket
    import fcntl

    ours, theirs = _socket.socketpair()
    # Above the descriptors that the daemon gets, so that none of them overwrites it.
    number = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, READY_DESCRIPTOR + 1)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600),
        (os.POSIX_SPAWN_DUP2, 2, 1),
        (os.POSIX_SPAWN_DUP2, number, READY_DESCRIPTOR),
    ]
    words = [sys.executable, *sys.orig_argv[1:]]
    # Its own session: a host that ends a whole group of processes ends only its own.
    os.posix_spawn(sys.executable, words, {**os.environ, STARTED_FOR: path}, file_actions=actions, setsid=True)
    theirs.close()
    os.close(number)
    ours.settimeout(_START_SECONDS)
    try:
        is_ready = ours.recv(1) == ACCEPTED
    except (TimeoutError, ConnectionResetError):
        is_ready = False

    ours.close()
    if not is_ready:
        raise OSError(f"the daemon does not start; its messages are in {log}")
