"""`[auth]` of mcpd.toml: who may use a server, by the tokens of others or by those that its operator hands out."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

_Url = Annotated[str, Meta(pattern="^https?://[^ #?]+$")]
_Scope = Annotated[str, Meta(pattern="^[!#-\\[\\]-~]+$")]


class _Table(Struct, kw_only=True, rename="kebab", forbid_unknown_fields=True, frozen=True):
    """A table whose keys are known."""


class IntrospectionTable(_Table, frozen=True):
    """How an issuer is asked about tokens: `[auth.introspection]`."""

    client_id: Annotated[str, Meta(min_length=1, description="As whom it is asked.")]
    client_secret_file: Annotated[str, Meta(min_length=1, description="The file that holds that client's secret.")]
    endpoint: Annotated[_Url | None, Meta(description="Where it is asked; by default its metadata says.")] = None


class AuthTable(_Table, frozen=True):
    """Authorization: `[auth]`. Flags of `mcpd serve` go before it."""

    public_url: Annotated[_Url | None, Meta(description="The URL of the endpoint that clients use.")] = None
    issuer: Annotated[
        tuple[_Url, ...] | _Url, Meta(description="The authorization server whose tokens are taken; or several.")
    ] = ()
    audience: Annotated[
        tuple[str, ...], Meta(description="What tokens for this server name as aud; by default the public URL.")
    ] = ()
    expect: Annotated[
        dict[str, tuple[str, ...] | str],
        Meta(description="Claims that prove that a token is for this server, where its issuer writes no such aud."),
    ] = {}
    jwks_url: Annotated[_Url | None, Meta(description="Where the issuer's keys are; by default its metadata says.")] = (
        None
    )
    algorithms: Annotated[tuple[str, ...], Meta(description="The signatures that are taken, as ES256.")] = ()
    provider: Annotated[
        str | None, Meta(description="One of the authorization servers that are known by name, instead of issuer.")
    ] = None
    tenant: Annotated[str | None, Meta(description="Your part of that provider, as its domain or realm.")] = None
    introspection: Annotated[
        IntrospectionTable | None, Meta(description="Ask the issuer about each token, as they are not signed.")
    ] = None
    strict: Annotated[bool, Meta(description="True: only tokens of the type at+jwt are taken.")] = False
    dpop: Annotated[
        Literal["off", "accept", "require"],
        Meta(description="Whether tokens that are bound to a key are taken, with a proof, or no others."),
    ] = "off"
    dpop_nonces: Annotated[bool, Meta(description="Proofs need a nonce of this server, as with several processes.")] = (
        False
    )
    skew: Annotated[float, Meta(ge=0, le=300, description="By how many seconds clocks may differ.")] = 60.0
    tokens_file: Annotated[
        str | None, Meta(description="A TOML file with tokens, their names and scopes, instead of an issuer.")
    ] = None
    scopes: Annotated[tuple[_Scope, ...], Meta(description="The scopes that every request needs.")] = ()
    implies: Annotated[
        dict[str, tuple[_Scope, ...]], Meta(description="Scopes that include others, each with a list of these.")
    ] = {}
    resource_name: Annotated[str | None, Meta(description="The server's name for people who log in.")] = None


FILES_URI = r"^(?!ui:)[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~/-]+$"
PAGES_URI = r"^(?!ui:)[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~/-]+/$"
BASE_URL = r"^https?://[^\s?#]+/$"
SKILL_PREFIX = r"^[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*$"
TOOL_NAME = r"^[A-Za-z0-9_.-]{1,128}$"
ARGUMENT = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"

_WORDS = {
    FILES_URI: 'the beginning of URIs, with a scheme that is not ui, as "notes://team/"',
    PAGES_URI: 'the beginning of URIs, with a scheme that is not ui and / at its end, as "handbook://"',
    BASE_URL: 'a URL of http or https with / at its end and neither ? nor #, as "https://docs.example.com/guide/"',
    SKILL_PREFIX: 'names with / between them, of letters, digits and any of . _ ~ -, as "acme/billing"',
    TOOL_NAME: 'a name of up to 128 letters, digits and any of _ . -, as "search_handbook"',
    ARGUMENT: 'a name of up to 64 letters, digits and _ that does not begin with a digit, as "max_results"',
}


def in_words(text: str) -> str:
    """What a value should have been; `text` is what msgspec says of it, with the pattern."""
    return next((f"expected {words}" for pattern, words in _WORDS.items() if repr(pattern) in text), text)


Doing: TypeAlias = Literal["search", "list_sections", "read_section", "read_page", "find_code", "look_up"]
"""What a tool over documents can do."""

DOING: tuple[Doing, ...] = ("search", "list_sections", "read_section", "read_page", "find_code", "look_up")

PROFILES = ("terragrunt",)
"""The names of what `tools` may name: files of assets/docs_profiles/."""

_Name = Annotated[str, Meta(pattern=TOOL_NAME)]
_ArgumentName = Annotated[str, Meta(pattern=ARGUMENT)]


class ArgumentTable(_Table, frozen=True):
    """One argument of a tool in other words."""

    name: Annotated[_ArgumentName | None, Meta(description="What callers name it.")] = None
    description: Annotated[str | None, Meta(description="What the model reads of it.")] = None
    default: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="The default of limit.")] = None
    hidden: Annotated[bool, Meta(description="Callers cannot set it.")] = False


_Argument: TypeAlias = Annotated[
    ArgumentTable | _ArgumentName | None, Meta(description="Its name for callers, or a table with more than that.")
]


class _ArgumentsTable(Struct, rename={}, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The arguments of all kinds of tools, under the names that they have by default."""

    query: _Argument = None
    section: _Argument = None
    kind: _Argument = None
    path: _Argument = None
    heading: _Argument = None
    words: _Argument = None
    language: _Argument = None
    name: _Argument = None
    limit: _Argument = None
    cursor: _Argument = None


class ToolTable(_Table, frozen=True):
    """One tool: `[docs.tools.NAME]`. NAME is what it does, or any name, where `does` says that."""

    enabled: Annotated[bool, Meta(description="False: there is no such tool.")] = True
    does: Annotated[Doing | None, Meta(description="What it does, where its table is not named by that.")] = None
    name: Annotated[_Name | None, Meta(description="Its name for callers.")] = None
    title: Annotated[str | None, Meta(description="Its name for people.")] = None
    description: Annotated[str | None, Meta(description="What the model reads of it.")] = None
    section: Annotated[
        Annotated[str, Meta(min_length=1)] | None, Meta(description="It sees this section alone, as reference/cli.")
    ] = None
    arguments: Annotated[_ArgumentsTable, Meta(description="Its arguments in other words.")] = _ArgumentsTable()
    result: Annotated[
        dict[str, Any], Meta(description="Its result under other names: each with the member that it is, or a table.")
    ] = {}


class DocsTable(_Table, frozen=True):
    """Documents that are resources and can be searched: `[docs]`."""

    enabled: Annotated[bool, Meta(description="False: its sub-folder is not looked at.")] = True
    folder: Annotated[str, Meta(min_length=1, description="The folder of the documents; . is this file's own.")] = (
        "docs"
    )
    title: Annotated[str | None, Meta(description="What the documents are called; by default the server's title.")] = (
        None
    )
    uri: Annotated[
        Annotated[str, Meta(pattern=PAGES_URI)] | None,
        Meta(description="What the URIs of its pages begin with, as handbook://; by default docs://NAME/."),
    ] = None
    include: Annotated[
        tuple[str, ...], Meta(description='Only these files are served, as "*.md" or "guides/*"; by default all.')
    ] = ()
    exclude: Annotated[tuple[str, ...], Meta(description='Files that are not served, as "drafts/*".')] = ()
    max_files: Annotated[
        int, Meta(ge=1, description="How many files are served; the others are named and left out.")
    ] = 50_000
    max_bytes: Annotated[int, Meta(ge=1, description="The largest file that is served, in bytes.")] = 16 * 1024 * 1024
    index: Annotated[
        str,
        Meta(min_length=1, description="Where the index is: disk (the user's cache), memory, or the path of a file."),
    ] = "disk"
    base_url: Annotated[
        Annotated[str, Meta(pattern=BASE_URL)] | None,
        Meta(description="Where the pages are published, with / at its end: results then have the page's URL."),
    ] = None
    tools: Annotated[
        str | dict[str, Any],
        Meta(description="A profile that comes with mcpd, as terragrunt, or a table for each tool."),
    ] = {}


_Folder = Annotated[str, Meta(min_length=1, description="The sub-folder, below this file's.")]
_Enabled = Annotated[bool, Meta(description="False: its sub-folder is not looked at.")]


class _ToolsTable(_Table, frozen=True):
    """Functions of Python files: `[tools]`."""

    enabled: _Enabled = True
    folder: _Folder = "tools"
    import_timeout: Annotated[float, Meta(gt=0, description="Seconds that the import of one file may take.")] = 10.0


class _AppsTable(_Table, frozen=True):
    """Pages that show the results of tools: `[apps]`."""

    enabled: _Enabled = True
    folder: _Folder = "apps"


class ResourcesTable(_Table, frozen=True):
    """Files that clients read: `[resources]`."""

    enabled: _Enabled = True
    folder: _Folder = "resources"
    uri: Annotated[
        Annotated[str, Meta(pattern=FILES_URI)] | None,
        Meta(description="What the URIs of its files begin with, as notes://; by default resource://NAME/."),
    ] = None
    max_files: Annotated[
        int, Meta(ge=1, description="How many files are served; the others are named and left out.")
    ] = 10_000
    max_bytes: Annotated[int, Meta(ge=1, description="The largest file that is served, in bytes.")] = 16 * 1024 * 1024
    exclude: Annotated[tuple[str, ...], Meta(description='Files that are not served, as "*.bak" or "drafts/*".')] = ()


class _PromptsTable(_Table, frozen=True):
    """Markdown files that are prompts: `[prompts]`."""

    enabled: _Enabled = True
    folder: _Folder = "prompts"


class SkillsTable(_Table, frozen=True):
    """Folders of instructions for models: `[skills]`."""

    enabled: _Enabled = True
    folder: _Folder = "skills"
    prefix: Annotated[
        Annotated[str, Meta(pattern=SKILL_PREFIX)] | None,
        Meta(
            description="What stands before the paths of its skills, as acme/billing in skill://acme/billing/refunds."
        ),
    ] = None
    exclude: Annotated[tuple[str, ...], Meta(description='Files that are not served, as "*.bak" or "drafts/*".')] = ()


class Configuration(_Table, frozen=True):
    """All of the file, with the defaults of a folder that has none."""

    name: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The server's name, as clients see it; by default the folder's."),
    ] = None
    version: Annotated[str, Meta(description="The server's version.")] = "0.0.0"
    title: Annotated[str | None, Meta(description="A name for people.")] = None
    description: Annotated[str | None, Meta(description="What the server is, for people.")] = None
    instructions: Annotated[str | None, Meta(description="How to use the server, for models.")] = None
    website_url: str | None = None
    lifespan: Annotated[
        str | None,
        Meta(description="FILE:FUNCTION that opens what tools share; by default lifespan.py:lifespan, if it is there."),
    ] = None
    page_size: Annotated[int, Meta(ge=1, description="The length of one page of a list.")] = 1000
    tool_timeout: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description="Seconds that a tool may take.")] = (
        None
    )
    show_errors: Annotated[bool, Meta(description="Let the texts of all exceptions reach the model.")] = False
    serve: Annotated[
        dict[str, Any], Meta(description="The options of mcpd serve, without their dashes; flags go before them.")
    ] = {}
    auth: Annotated[AuthTable | None, Meta(description="Who may use it over HTTP and WebSocket.")] = None
    tools: _ToolsTable = _ToolsTable()
    apps: _AppsTable = _AppsTable()
    resources: ResourcesTable = ResourcesTable()
    prompts: _PromptsTable = _PromptsTable()
    skills: SkillsTable = SkillsTable()
    docs: DocsTable = DocsTable()
