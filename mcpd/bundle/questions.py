"""What a user is asked for when a bundle is installed: the variables that the server reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from msgspec import UNSET, Struct

from mcpd.bundle.manifest import Question
from mcpd.errors import ConfigurationError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_PARTS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "CREDENTIAL", "AUTH")


class Asked(Struct, frozen=True):
    """The questions by their keys, and the key of each variable."""

    questions: dict[str, Question]
    keys: dict[str, str]


def questions(said: Iterable[str], environment: Mapping[str, str] = os.environ) -> Asked:
    """From NAME, which the user has to fill in, and NAME=VALUE, which stands until he does. Raises ConfigurationError.

    What a variable holds in `environment` says of what kind it is, and goes into no bundle.
    """
    found = Asked({}, {})
    for word in said:
        name, has_default, value = word.partition("=")
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"--env {name}: write --env NAME, or --env NAME=VALUE with what stands by default")
        if has_default and is_secret(name):
            raise ConfigurationError(
                f"--env {name}=…: a secret has no place in a bundle; write --env {name}, and each user is asked for one"
            )
        key = name.lower()
        found.keys[name] = key
        found.questions[key] = _question(name, value if has_default else None, environment.get(name, ""))
    return found


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds what nobody else may see."""
    return any(part in name.upper() for part in _SECRET_PARTS)


def _question(name: str, default: str | None, here: str) -> Question:
    example = here if default is None else default
    title = " ".join(name.replace("_", " ").split()).capitalize()
    text = f"The variable {name} of the server."
    if example.lower() in ("true", "false"):
        return Question(
            type="boolean",
            title=title,
            description=text,
            required=default is None,
            default=UNSET if default is None else default.lower() == "true",
        )
    kind = "string"
    if os.path.isabs(example) and not is_secret(name):
        kind = "directory" if os.path.isdir(example) else "file" if os.path.isfile(example) else "string"
    return Question(
        type=kind,  # type: ignore[arg-type]
        title=title,
        description=text,
        required=default is None,
        sensitive=is_secret(name),
        default=UNSET if default is None else default,
    )
