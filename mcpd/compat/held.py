"""What resources hold in the one library and in the other: a text, bytes, files, what an address gives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, field_validator

__all__ = ["AtPath", "HeldBytes", "HeldText", "fetched", "files_below", "names_of"]


class HeldText(BaseModel):
    """A text."""

    model_config = ConfigDict(defer_build=True)

    text: str

    async def read(self) -> str:
        """The text."""
        return self.text


class HeldBytes(BaseModel):
    """Bytes."""

    model_config = ConfigDict(defer_build=True)

    data: bytes

    async def read(self) -> bytes:
        """The bytes."""
        return self.data


class AtPath(BaseModel):
    """What is at an absolute path."""

    model_config = ConfigDict(defer_build=True)

    path: Path

    @field_validator("path")
    @classmethod
    def _is_absolute(cls, path: Path) -> Path:
        if not path.is_absolute():
            raise ValueError("Path must be absolute")
        return path


async def fetched(url: str, error_type: type[Exception]) -> str:
    """The text at an address. Raises `error_type` without httpx, and what httpx raises."""
    try:
        import httpx
    except ImportError as error:
        raise error_type("an HttpResource needs httpx: pip install httpx") from error
    async with httpx.AsyncClient() as client:
        response = await client.get(url)
        response.raise_for_status()
        return str(response.text)


def files_below(folder: Path, pattern: str | None, *, is_recursive: bool) -> list[Path]:
    """The files and folders in a folder. Raises FileNotFoundError, NotADirectoryError."""
    if not folder.exists():
        raise FileNotFoundError(f"Directory not found: {folder}")
    if not folder.is_dir():
        raise NotADirectoryError(f"Not a directory: {folder}")
    look = folder.rglob if is_recursive else folder.glob
    return list(look(pattern or "*"))


def names_of(files: Iterable[Path], folder: Path) -> str:
    """The names of the files among these, as the JSON that a folder is read as."""
    return json.dumps({"files": [str(file.relative_to(folder)) for file in files if file.is_file()]}, indent=2)
