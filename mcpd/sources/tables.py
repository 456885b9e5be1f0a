"""The tables of `mcpd.toml` as structs. Their descriptions are also the texts of the JSON Schema for editors."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import Meta, Struct

_Url = Annotated[str, Meta(pattern="^https?://[^ #?]+$")]
_Scope = Annotated[str, Meta(pattern="^[!#-\\[\\]-~]+$")]


class _Table(Struct, kw_only=True, rename="kebab", forbid_unknown_fields=True, frozen=True):
    """A table without unknown keys."""


class IntrospectionTable(_Table, frozen=True):
    """`[auth.introspection]`: how tokens are checked with their issuer."""

    client_id: Annotated[str, Meta(min_length=1, description="The client ID for these requests.")]
    client_secret_file: Annotated[str, Meta(min_length=1, description="The file with the secret of that client.")]
    endpoint: Annotated[
        _Url | None, Meta(description="The URL of the endpoint; by default from the issuer's metadata.")
    ] = None


class AuthTable(_Table, frozen=True):
    """`[auth]`: authorization. The options of `mcpd serve` override it."""

    public_url: Annotated[_Url | None, Meta(description="The URL of the endpoint that clients use.")] = None
    issuer: Annotated[
        tuple[_Url, ...] | _Url,
        Meta(description="The authorization server whose tokens are accepted, or a list of them."),
    ] = ()
    audience: Annotated[
        tuple[str, ...], Meta(description="Accepted values of the claim aud; by default the public URL.")
    ] = ()
    expect: Annotated[
        dict[str, tuple[str, ...] | str],
        Meta(description="Claims that prove that a token is for this server, if its issuer does not set aud."),
    ] = {}
    jwks_url: Annotated[
        _Url | None, Meta(description="The URL of the issuer's keys; by default from its metadata.")
    ] = None
    algorithms: Annotated[tuple[str, ...], Meta(description="The accepted signature algorithms, such as ES256.")] = ()
    provider: Annotated[str | None, Meta(description="A known authorization server, instead of issuer.")] = None
    tenant: Annotated[str | None, Meta(description="Your tenant at that provider, such as a domain or realm.")] = None
    introspection: Annotated[
        IntrospectionTable | None, Meta(description="Introspection at the issuer, for tokens that are not signed.")
    ] = None
    strict: Annotated[bool, Meta(description="Accept only tokens of the type at+jwt.")] = False
    dpop: Annotated[
        Literal["off", "accept", "require"],
        Meta(description="Whether tokens bound to a key (DPoP) are accepted or required."),
    ] = "off"
    dpop_nonces: Annotated[
        bool, Meta(description="Require a nonce from this server in proofs; needed with several processes.")
    ] = False
    skew: Annotated[float, Meta(ge=0, le=300, description="Tolerated clock difference, in seconds.")] = 60.0
    tokens_file: Annotated[
        str | None, Meta(description="A TOML file with tokens, their names and scopes, instead of an issuer.")
    ] = None
    scopes: Annotated[tuple[_Scope, ...], Meta(description="Scopes that every request requires.")] = ()
    implies: Annotated[
        dict[str, tuple[_Scope, ...]], Meta(description="Scopes that include other scopes, each with a list of these.")
    ] = {}
    resource_name: Annotated[str | None, Meta(description="The name of the server for people who log in.")] = None


FILES_URI = r"^(?!ui:)[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~/-]+$"
PAGES_URI = r"^(?!ui:)[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~/-]+/$"
BASE_URL = r"^https?://[^\s?#]+/$"
SKILL_PREFIX = r"^[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*$"
TOOL_NAME = r"^[A-Za-z0-9_.-]{1,128}$"
ARGUMENT = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"

_WORDS = {
    FILES_URI: 'a URI prefix with a scheme other than ui, such as "notes://team/"',
    PAGES_URI: 'a URI prefix with a scheme other than ui that ends in /, such as "handbook://"',
    BASE_URL: 'an http or https URL that ends in /, without ? and #, such as "https://docs.example.com/guide/"',
    SKILL_PREFIX: 'names of letters, digits and . _ ~ - with / between them, such as "acme/billing"',
    TOOL_NAME: 'a name of up to 128 letters, digits and _ . -, such as "search_handbook"',
    ARGUMENT: 'a name of up to 64 letters, digits and _ that does not begin with a digit, such as "max_results"',
}


def pattern_message(text: str) -> str:
    """Return a readable message for a msgspec error that contains one of the patterns."""
    return next((f"expected {words}" for pattern, words in _WORDS.items() if repr(pattern) in text), text)


Doing: TypeAlias = Literal["search", "list_sections", "read_section", "read_page", "find_code", "look_up"]
"""The operations of tools over documents."""

DOING: tuple[Doing, ...] = get_args(Doing)

PROFILES = ("terragrunt",)
"""The values of `tools` in `[docs]` that name a file in assets/docs_profiles/."""

_Name = Annotated[str, Meta(pattern=TOOL_NAME)]
_ArgumentName = Annotated[str, Meta(pattern=ARGUMENT)]


class ArgumentTable(_Table, frozen=True):
    """Changes to one argument of a tool."""

    name: Annotated[_ArgumentName | None, Meta(description="Its name for callers.")] = None
    description: Annotated[str | None, Meta(description="Its description for the model.")] = None
    default: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="The default of limit.")] = None
    hidden: Annotated[bool, Meta(description="Callers cannot set it.")] = False


_Argument: TypeAlias = Annotated[
    ArgumentTable | _ArgumentName | None, Meta(description="Its name for callers, or a table with further settings.")
]


class _ArgumentsTable(Struct, rename={}, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The arguments of all tools by their default names."""

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
    """`[docs.tools.NAME]`: one tool. NAME is its operation, or any name if `does` gives the operation."""

    enabled: Annotated[bool, Meta(description="Whether to offer this tool.")] = True
    does: Annotated[Doing | None, Meta(description="Its operation, if the table has another name.")] = None
    name: Annotated[_Name | None, Meta(description="Its name for callers.")] = None
    title: Annotated[str | None, Meta(description="Its name for people.")] = None
    description: Annotated[str | None, Meta(description="Its description for the model.")] = None
    section: Annotated[
        Annotated[str, Meta(min_length=1)] | None, Meta(description="Limit it to this section, such as reference/cli.")
    ] = None
    arguments: Annotated[_ArgumentsTable, Meta(description="Changes to its arguments.")] = _ArgumentsTable()
    result: Annotated[
        dict[str, Any],
        Meta(description="Its result with other names; each is set to the original member or to a table."),
    ] = {}


_Folder = Annotated[str, Meta(min_length=1, description="The sub-folder, relative to this file.")]
_Enabled = Annotated[bool, Meta(description="Whether to serve this sub-folder.")]
_MaxFiles = Annotated[
    int, Meta(ge=1, description="The largest number of files to serve; the rest is reported and left out.")
]
_MaxBytes = Annotated[int, Meta(ge=1, description="The largest file to serve, in bytes.")]
_Exclude = Annotated[tuple[str, ...], Meta(description='Files to leave out, such as "*.bak" or "drafts/*".')]


class DocsTable(_Table, frozen=True):
    """`[docs]`: documents that are resources and can be searched."""

    enabled: _Enabled = True
    folder: Annotated[
        str, Meta(min_length=1, description="The folder of the documents; . is the folder of this file.")
    ] = "docs"
    title: Annotated[
        str | None, Meta(description="The title of the documents; by default the title of the server.")
    ] = None
    uri: Annotated[
        Annotated[str, Meta(pattern=PAGES_URI)] | None,
        Meta(description="The prefix of the URIs of pages, such as handbook://; by default docs://NAME/."),
    ] = None
    include: Annotated[
        tuple[str, ...], Meta(description='Serve only these files, such as "*.md" or "guides/*"; by default all.')
    ] = ()
    exclude: _Exclude = ()
    max_files: _MaxFiles = 50_000
    max_bytes: _MaxBytes = 16 * 1024 * 1024
    index: Annotated[
        str,
        Meta(
            min_length=1, description="Where to keep the index: disk (the user's cache), memory, or the path of a file."
        ),
    ] = "disk"
    base_url: Annotated[
        Annotated[str, Meta(pattern=BASE_URL)] | None,
        Meta(description="The URL at which the pages are published, ending in /; results then contain URLs."),
    ] = None
    tools: Annotated[
        str | dict[str, Any],
        Meta(description="A profile included in mcpd, such as terragrunt, or a table for each tool."),
    ] = {}


class _ToolsTable(_Table, frozen=True):
    """`[tools]`: functions in Python files."""

    enabled: _Enabled = True
    folder: _Folder = "tools"
    import_timeout: Annotated[float, Meta(gt=0, description="Time limit for the import of one file, in seconds.")] = (
        10.0
    )


class _AppsTable(_Table, frozen=True):
    """`[apps]`: HTML pages that show the results of tools."""

    enabled: _Enabled = True
    folder: _Folder = "apps"


class ResourcesTable(_Table, frozen=True):
    """`[resources]`: files that clients read."""

    enabled: _Enabled = True
    folder: _Folder = "resources"
    uri: Annotated[
        Annotated[str, Meta(pattern=FILES_URI)] | None,
        Meta(description="The prefix of the URIs of files, such as notes://; by default resource://NAME/."),
    ] = None
    max_files: _MaxFiles = 10_000
    max_bytes: _MaxBytes = 16 * 1024 * 1024
    exclude: _Exclude = ()


class _PromptsTable(_Table, frozen=True):
    """`[prompts]`: Markdown files that are prompts."""

    enabled: _Enabled = True
    folder: _Folder = "prompts"


class SkillsTable(_Table, frozen=True):
    """`[skills]`: folders of instructions for models."""

    enabled: _Enabled = True
    folder: _Folder = "skills"
    prefix: Annotated[
        Annotated[str, Meta(pattern=SKILL_PREFIX)] | None,
        Meta(description="A prefix for the paths of skills, such as acme/billing in skill://acme/billing/refunds."),
    ] = None
    exclude: _Exclude = ()


_Patterns = Annotated[
    tuple[str, ...], Meta(description="Patterns of operations: a name, tag:NAME, METHOD, /path/* or METHOD /path/*.")
]


class OpenApiTable(_Table, frozen=True):
    """`[openapi.NAME]`: an HTTP API whose operations are tools. Also the options of `Server.add_openapi`."""

    document: Annotated[str, Meta(description="The OpenAPI document: a file, or its URL.")] = ""
    base: Annotated[
        str | None, Meta(description="The URL of the API; by default the first server that the document names.")
    ] = None
    prefix: Annotated[
        str | None, Meta(description="Precedes the names of tools; by default NAME and an underscore.")
    ] = None
    allow: _Patterns = ()
    deny: _Patterns = ()
    rename: Annotated[dict[str, str], Meta(description="New names of tools, by operationId or name.")] = {}
    always_load: _Patterns = ()
    headers: Annotated[
        dict[str, str], Meta(description="Headers of each request, such as ${NAME} of the environment.")
    ] = {}
    query: Annotated[dict[str, str], Meta(description="Query parameters of each request.")] = {}
    security: Annotated[
        dict[str, str],
        Meta(description="Credentials by the name of a security scheme, such as ${NAME}; for basic user:password."),
    ] = {}
    token_file: Annotated[str | None, Meta(description="A file with a bearer token, read for each request.")] = None
    forward_headers: Annotated[
        tuple[str, ...], Meta(description="Headers of the client that are passed on to the API.")
    ] = ()
    forward_authorization: Annotated[bool, Meta(description="Pass on the client's Authorization header.")] = False
    timeout: Annotated[float, Meta(gt=0, description="Time limit of a request, in seconds.")] = 60.0
    max_bytes: Annotated[int, Meta(ge=1, description="The largest response, in bytes.")] = 4 * 1024 * 1024
    output_schemas: Annotated[
        bool, Meta(description="Give tools output schemas. Responses that do not fit them are errors.")
    ] = True


class Configuration(_Table, frozen=True):
    """The whole file. The defaults are the settings of a folder without one."""

    name: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The name of the server for clients; by default the name of the folder."),
    ] = None
    version: Annotated[str, Meta(description="The server's version.")] = "0.0.0"
    title: Annotated[str | None, Meta(description="A title for people.")] = None
    description: Annotated[str | None, Meta(description="A description for people.")] = None
    instructions: Annotated[str | None, Meta(description="Instructions for models on how to use the server.")] = None
    website_url: str | None = None
    lifespan: Annotated[
        str | None,
        Meta(description="FILE:FUNCTION that opens what tools share; by default lifespan.py:lifespan, if it exists."),
    ] = None
    page_size: Annotated[int, Meta(ge=1, description="How many entries one page of a list has.")] = 1000
    tool_timeout: Annotated[
        Annotated[float, Meta(gt=0)] | None, Meta(description="Time limit for one call of a tool, in seconds.")
    ] = None
    show_errors: Annotated[bool, Meta(description="Send the messages of all exceptions to the model.")] = False
    serve: Annotated[
        dict[str, Any],
        Meta(description="The options of mcpd serve, without the dashes. The command line overrides them."),
    ] = {}
    auth: Annotated[AuthTable | None, Meta(description="Authorization over HTTP and WebSocket.")] = None
    tools: _ToolsTable = _ToolsTable()
    apps: _AppsTable = _AppsTable()
    resources: ResourcesTable = ResourcesTable()
    prompts: _PromptsTable = _PromptsTable()
    skills: SkillsTable = SkillsTable()
    docs: DocsTable = DocsTable()
    openapi: Annotated[dict[str, Any], Meta(description="HTTP APIs whose operations are tools.")] = {}
    mounts: Annotated[
        dict[str, dict[str, Any]], Meta(description="Other servers that are offered too, each in a table of its own.")
    ] = {}
