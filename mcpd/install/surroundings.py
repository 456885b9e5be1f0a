"""What a host gives the server that it starts: which variables of its own, and in which folder.

Of Claude Code, Codex, Gemini CLI, OpenCode and Qwen Code this was measured on the programs themselves; of the others it
is what the libraries do that they are built on, which is less: a server that starts with less starts with more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

from mcpd.client.targets.hosts import Host
from mcpd.doctor.child import PASSED_ON

_WINDOWS = (
    "APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PROCESSOR_ARCHITECTURE", "SYSTEMDRIVE", "SYSTEMROOT",
    "TEMP", "USERNAME", "USERPROFILE", "PROGRAMFILES",
)  # fmt: skip
"""What the official libraries pass there."""

_CODEX = (*PASSED_ON, "LANG", "LC_ALL", "TMPDIR", "TZ", "__CF_USER_TEXT_ENCODING")

_SECRET_PARTS = ("TOKEN", "SECRET", "PASSWORD", "KEY", "AUTH", "CREDENTIAL")

_MINIMAL_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_WITHOUT_SHELL = frozenset(("claude-desktop", "lm-studio", "xcode-claude", "xcode-codex"))
"""Started from the desktop: on macOS nobody has read the profile of a shell for them."""


def passed_on(
    host: Host | None,
    environment: Mapping[str, str] = os.environ,
    *,
    names: Iterable[str] = (),
    platform: str = sys.platform,
) -> dict[str, str]:
    """The variables that a server of this host gets beside those of its entry; None is a host that is not known.

    `environment` is the host's own. `names` are variables that the entry asks for by name.
    """
    kind = "sdk" if host is None else host.environment
    if kind == "whole":
        found = dict(environment)
    elif kind == "filtered":
        found = {name: value for name, value in environment.items() if not is_secret(name)}
    else:
        kept: tuple[str, ...] = _CODEX if kind == "codex" else PASSED_ON
        if platform == "win32":
            kept = _WINDOWS
        found = {name: environment[name] for name in (*kept, *names) if name in environment}
    if platform == "darwin" and host is not None and host.id in _WITHOUT_SHELL:
        found["PATH"] = _MINIMAL_PATH
    return found


def stripped(host: Host | None, environment: Mapping[str, str], *, names: Iterable[str] = ()) -> list[str]:
    """The variables of this environment that look like a server's settings, and that the host keeps back."""
    kept = passed_on(host, environment, names=names)
    return sorted(
        name for name in environment if name not in kept and (name.startswith("MCPD_") or is_secret(name.upper()))
    )


def working_folder(cwd: str | None, project: str | None) -> str:
    """Where a host starts a server: where its entry says, in its project, else in a folder that is no one's."""
    if cwd:
        return os.path.expanduser(cwd)
    return project or os.path.abspath(os.sep)


def is_secret(name: str) -> bool:
    """Whether a variable of this name is taken for a secret, as some hosts do."""
    return any(part in name.upper() for part in _SECRET_PARTS)
