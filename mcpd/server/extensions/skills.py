"""Skills as an extension of a server: folders of instructions for models, resources with methods of their own.

Each method uses the resources that are visible for the request, so rules and switches apply. Pages are sorted by URI,
and a cursor is the last URI of a page, so that added or removed skills repeat no other skill. Clients need not offer
the extension: the server's declaration is enough (SEP-2640, Capability Negotiation). Sources of skills are in
`mcpd.sources`. Spec: SEP-2640.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Literal, Protocol, TypeVar, cast

from msgspec import structs

from mcpd.errors import InvalidParams
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import CacheableResult, PageParams, Params, Result, Wire
from mcpd.protocol.types.features import Resource
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.entries import ResourceEntry, make_cursor, read_cursor
from .base import Extension, ExtensionHost, Method

_NAME = r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?\Z"


class SkillResource(Wire, kw_only=True):
    """A file of a skill. `digest` is `sha256:` and 64 hexadecimal digits; `size` is in bytes."""

    uri: str
    digest: str
    size: int


class Skill(Wire, kw_only=True):
    """One skill as clients see it: the URI of its SKILL.md, the front matter as JSON, and all of its files.

    `resources` is "dynamic" if the content is created when it is read.
    """

    uri: str
    frontmatter: dict[str, Any]
    resources: list[SkillResource] | Literal["dynamic"]


class SkillSource(Protocol):
    """Describes one skill. An entry with it in `extension_data[SKILLS]` is the resource of a SKILL.md."""

    def describe(self) -> Skill | None:
        """Return the current skill; None while it cannot be used. May read files; called in any thread."""


def skill_entries(entries: Iterable[ResourceEntry]) -> dict[str, ResourceEntry]:
    """Return the entries that are files of skills, sorted by URI."""
    skills = {entry.key: entry for entry in entries if SKILLS in entry.extension_data}
    return dict(sorted(skills.items()))


def source_of(entry: ResourceEntry) -> SkillSource | None:
    """Return the source of the skill whose SKILL.md this is; None for another file."""
    data: Mapping[str, Any] = entry.extension_data
    return cast("SkillSource | None", data.get(SKILLS))


def is_name(text: object) -> bool:
    """Whether a text can be the name of a skill: 1 to 64 lower-case letters, digits and single inner hyphens."""
    import re  # few servers have skills

    return isinstance(text, str) and re.match(_NAME, text) is not None


def root_uri(path: str) -> str:
    """Return the URI of the SKILL.md of the skill at an escaped path, such as `billing/refunds`."""
    return f"{SCHEME}{path}/{FILE}"


# The extension's id.
SKILLS = "io.modelcontextprotocol/skills"

# The URI scheme of skills.
SCHEME = "skill://"

# The file that makes a folder a skill.
FILE = "SKILL.md"

# The MIME type of a folder.
DIRECTORY = "inode/directory"

# The number of files of a skill that every host must accept.
MOST_FILES = 512

# The total size of the files of a skill that every host must accept.
MOST_TOTAL_BYTES = 16 * 1024 * 1024

T = TypeVar("T")

# The number of files on one page, unless a single skill has more.
MOST_NAMED = 10_000


class GetSkillParams(Params, kw_only=True):
    """The URI of a SKILL.md."""

    uri: str


class ReadDirectoryParams(PageParams, kw_only=True):
    """The URI of a folder, without a slash at its end."""

    uri: str


class ListSkillsResult(CacheableResult, kw_only=True):
    """One page of skills."""

    skills: list[Skill]
    next_cursor: str | None = None


class GetSkillResult(CacheableResult, kw_only=True):
    """One skill."""

    skill: Skill


class ReadDirectoryResult(Result, kw_only=True):
    """The direct contents of a folder."""

    resources: list[Resource]
    next_cursor: str | None = None


async def visible_catalog(catalog: Catalog, exchange: Exchange) -> Catalog:
    """Return the catalog as the sender of a request may see it."""
    catalog = (None if catalog.part_for is None else catalog.part_for(exchange)) or catalog
    if catalog.rules is None:
        return catalog
    from mcpd.server.registry.visibility import view  # few servers have rules

    return await view(catalog, exchange, "resources/list", None)


async def _list(catalog: Catalog, exchange: Exchange, params: PageParams) -> Result:
    from mcpd.server.functions.threads import run_in_thread  # loaded with the first plain function

    return await run_in_thread(_read_page, catalog, params.cursor, exchange=exchange)  # type: ignore[no-any-return]


def _read_page(catalog: Catalog, cursor: str | None) -> ListSkillsResult:
    files = skill_entries(catalog.resources)
    roots = {uri: source for uri, entry in files.items() if (source := source_of(entry)) is not None}
    skills: list[Skill] = []
    named = 0
    shown, following = _page(roots, cursor, catalog.resources.page_size)
    for uri, source in shown.items():
        skill = source.describe()
        if skill is None:
            continue
        skills.append(_visible(skill, files))
        named += 1 if skill.resources == "dynamic" else len(skill.resources)
        if named >= MOST_NAMED and uri != next(reversed(shown)):
            following = make_cursor(uri)
            break
    return ListSkillsResult(skills=skills, next_cursor=following)


async def _get(catalog: Catalog, exchange: Exchange, params: GetSkillParams) -> Result:
    from mcpd.server.functions.threads import run_in_thread

    files = skill_entries(catalog.resources)
    entry = files.get(params.uri)
    source = None if entry is None else source_of(entry)
    skill: Skill | None = None if source is None else await run_in_thread(source.describe, exchange=exchange)
    if skill is None:
        text = f"uri: there is no skill at {printable(params.uri, 300)}; skills/list returns all skills"
        raise InvalidParams(text, {"uri": params.uri})
    return GetSkillResult(skill=_visible(skill, files))


def _visible(skill: Skill, files: dict[str, Any]) -> Skill:
    # Return the skill with the files that the client can read.
    if skill.resources == "dynamic" or all(one.uri in files for one in skill.resources):
        return skill
    return structs.replace(skill, resources=[one for one in skill.resources if one.uri in files])


async def _read_directory(catalog: Catalog, exchange: Exchange, params: ReadDirectoryParams) -> Result:
    above = f"{params.uri}/"
    active = catalog.active_extensions(exchange)
    files = skill_entries(catalog.resources)
    children: dict[str, Resource] = {}
    for uri, entry in files.items():
        name, is_deeper, _ = uri.removeprefix(above).partition("/")
        if not uri.startswith(above):
            continue
        if not is_deeper:
            children[uri] = entry.listed(active)
        elif above + name not in children:
            children[above + name] = Resource(uri=above + name, name=_unescaped(name), mime_type=DIRECTORY)
    if not children or params.uri in (SCHEME[:-1], SCHEME[:-2]):
        what = "is a file, not a folder" if params.uri in files else "is not a folder of a skill"
        raise InvalidParams(f"uri: {printable(params.uri, 300)} {what}", {"uri": params.uri})

    shown, following = _page(dict(sorted(children.items())), params.cursor, catalog.resources.page_size)
    shape = exchange.call.version.shape
    return ReadDirectoryResult(resources=[shape(child) for child in shown.values()], next_cursor=following)


def _page(items: dict[str, T], cursor: str | None, size: int) -> tuple[dict[str, T], str | None]:
    after = "" if cursor is None else read_cursor(cursor)
    if cursor is not None and not after.startswith(SCHEME):
        raise InvalidParams("cursor: not a cursor of this server; start again without a cursor")
    left = {uri: item for uri, item in items.items() if uri > after}
    shown = dict(list(left.items())[:size])
    return shown, make_cursor(next(reversed(shown))) if len(left) > len(shown) else None


def _unescaped(name: str) -> str:
    from urllib.parse import unquote  # few clients read folders

    return printable(unquote(name), 300)


# These functions get a catalog and an exchange from `SkillsExtension.handler`.
_ROWS: dict[str, tuple[type[Params], Any]] = {
    "skills/list": (PageParams, _list),
    "skills/get": (GetSkillParams, _get),
    "resources/directory/read": (ReadDirectoryParams, _read_directory),
}

METHODS = {name: Method(params=params, run=run) for name, (params, run) in _ROWS.items()}


class SkillsExtension(Extension):
    """The skills of a server. It is announced with the first skill, or the first source of skills."""

    capabilities = ("resources",)

    def __init__(self) -> None:
        super().__init__(SKILLS, settings={"directoryRead": True})
        self._is_offered = False

    def offer(self) -> None:
        """Announce the extension: there are skills, or there may be some."""
        if self._is_offered:
            return
        assert self.server is not None
        self._is_offered = True
        self.requests.update(METHODS)
        self.server.announce(self)

    # -- for the server ----------------------------------------------------------------------

    def bind(self, server: ExtensionHost) -> None:
        """Add the extension to a server, without announcing it."""
        self.server = server

    def admits(self, client: ClientIdentity) -> bool:
        """Return True: every client may use skills."""
        return True

    def resource_changed(self, uri: str, *, is_removed: bool) -> None:
        """Announce the extension with the first skill."""
        if self._is_offered or is_removed or not (uri.startswith(SCHEME) and uri.endswith(f"/{FILE}")):
            return
        assert self.server is not None
        entry = self.server.catalog.resources.find(uri)
        if entry is not None and SKILLS in entry.extension_data:
            self.offer()

    def joined(self, other: Extension) -> None:
        """Announce the extension if the other server has skills."""
        if isinstance(other, SkillsExtension) and other._is_offered:
            self.offer()

    def handler(self, name: str, method: Method) -> Callable[[Exchange, Any], Coroutine[Any, Any, Result]]:
        """Return the handler of a method, which receives the catalog as the client may see it."""
        assert self.server is not None
        catalog = self.server.catalog
        run: Any = method.run  # it takes the catalog too

        async def handle(exchange: Exchange, params: Any) -> Result:
            return await run(await visible_catalog(catalog, exchange), exchange, params)  # type: ignore[no-any-return]

        return handle
