"""Images, audio, embedded resources and icons."""

from pathlib import Path
from tempfile import gettempdir

from mcpd import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    Icon,
    ImageContent,
    ResourceLink,
    Server,
    TextResourceContents,
    audio,
    embedded,
    image,
    link,
    text,
)  # fmt: skip

LOGO = Icon(src="https://example.com/brand-kit.png", mime_type="image/png", sizes=["48x48"])
PALETTE = Icon(src="https://example.com/palette.svg", mime_type="image/svg+xml", sizes=["any"])
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
WAV = b"RIFF\0\0\0\0WAVEfmt "

server = Server("Brand kit", icons=[LOGO])


@server.tool
def logo() -> ImageContent:
    """The brand logo as a PNG."""
    return image(PNG)


@server.tool
def logo_from_file() -> ImageContent:
    """The brand logo from a file, whose name gives the type."""
    path = Path(gettempdir()) / "mcpd-brand-kit-logo.png"
    path.write_bytes(PNG)
    return image(path)


@server.tool
def chime() -> AudioContent:
    """The notification chime as a WAV."""
    return audio(WAV, "audio/wav")


@server.tool
def brand_kit() -> list[ContentBlock]:
    """Several kinds of content in one result."""
    return [text("The kit:"), image(PNG), audio(WAV, "audio/wav"), link("brand://guidelines", "Guidelines")]


@server.tool
def mixed() -> list[object]:
    """Content and plain values in one result."""
    return [image(PNG), "the logo", {"colours": 3}]


@server.tool(icons=[PALETTE])
def palette() -> list[str]:
    """The brand colour palette as hex codes."""
    return ["#1d4ed8", "#f59e0b", "#10b981"]


@server.resource("brand://guidelines", icons=[LOGO], mime_type="text/markdown")
def guidelines() -> str:
    """How to use the brand assets."""
    return "# Brand guidelines\n\nUse the primary colour for calls to action.\n"


@server.tool
def brand_guidelines() -> EmbeddedResource:
    """The brand guidelines as a Markdown document."""
    return EmbeddedResource(TextResourceContents("brand://guidelines", guidelines(), "text/markdown"))


@server.tool
def brand_archive() -> EmbeddedResource:
    """The whole brand kit as an archive."""
    return embedded("brand://archive.zip", b"PK\x05\x06" + b"\0" * 18, "application/zip")


@server.tool
def where() -> ResourceLink:
    """A link to the guidelines."""
    return link("brand://guidelines", "Guidelines", mime_type="text/markdown")


if __name__ == "__main__":
    server.run(stdio=True)
