"""The short names for building content: what they make, what they guess, what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcpd import audio, embedded, image, link, text
from mcpd.protocol.types.features import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)


def test_text() -> None:
    assert text("hello") == TextContent("hello")


def test_an_image_of_bytes() -> None:
    assert image(b"\x89PNG", "image/png") == ImageContent(b"\x89PNG", "image/png")


@pytest.mark.parametrize(
    ("name", "mime_type"), [("dot.png", "image/png"), ("photo.JPG", "image/jpeg"), ("drawing.svg", "image/svg+xml")]
)
def test_the_name_of_a_file_tells_its_type(tmp_path: Path, name: str, mime_type: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"data")
    assert image(path) == image(str(path)) == ImageContent(b"data", mime_type)


def test_a_given_type_goes_before_the_name(tmp_path: Path) -> None:
    path = tmp_path / "sound.ogg"
    path.write_bytes(b"data")
    assert audio(path) == AudioContent(b"data", "audio/ogg")
    assert audio(path, "audio/opus") == AudioContent(b"data", "audio/opus")


@pytest.mark.parametrize(
    ("make", "data", "mime_type"),
    [
        (image, b"\x89PNG\r\n\x1a\n\0", "image/png"),
        (image, b"\xff\xd8\xff\xe0", "image/jpeg"),
        (image, b"GIF89a", "image/gif"),
        (image, b"RIFF\x01\0\0\0WEBPVP8 ", "image/webp"),
        (audio, b"RIFF\x01\0\0\0WAVEfmt ", "audio/wav"),
        (audio, b"ID3\x04", "audio/mpeg"),
        (audio, b"OggS\0", "audio/ogg"),
        (audio, b"fLaC\0", "audio/flac"),
    ],
)
def test_what_it_begins_with_tells_the_type_of_bytes(tmp_path: Path, make: Any, data: bytes, mime_type: str) -> None:
    path = tmp_path / "file.xyz"
    path.write_bytes(data)
    assert make(data).mime_type == make(path).mime_type == mime_type
    assert make(data, "x/y").mime_type == "x/y"
    other = audio if make is image else image
    with pytest.raises(ValueError, match="No MIME type known for bytes"):
        other(data)


def test_a_type_that_nobody_knows_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "sound.xyz"
    path.write_bytes(b"data")
    with pytest.raises(ValueError, match=r"sound\.xyz.*pass mime_type="):
        audio(path)
    with pytest.raises(ValueError, match="No MIME type known for bytes: pass mime_type="):
        image(b"data")
    with pytest.raises(FileNotFoundError):
        image(tmp_path / "nothing.png")


def test_an_embedded_resource() -> None:
    assert embedded("a:b", "text") == EmbeddedResource(TextResourceContents("a:b", "text", "text/plain"))
    assert embedded("a:b", b"\0") == EmbeddedResource(BlobResourceContents("a:b", b"\0", "application/octet-stream"))
    assert embedded("a:b", "{}", "application/json").resource.mime_type == "application/json"


def test_a_link() -> None:
    assert link("a:b", "name") == ResourceLink(uri="a:b", name="name")
    whole = link("a:b", "name", title="Title", description="What", mime_type="text/plain", size=3)
    assert (whole.title, whole.description, whole.mime_type, whole.size) == ("Title", "What", "text/plain", 3)
