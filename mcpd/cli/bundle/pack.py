"""Makes a bundle from a target: its files, the packages that they need, and what the started server offers.

Hosts install the packages with `uv`, each for its own system, so that one bundle serves all systems.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import struct
import tempfile
from importlib.metadata import version as distribution_version

from msgspec import UNSET, Struct, UnsetType

from mcpd import __version__
from mcpd.cli.install.files import explained
from mcpd.cli.install.formats.toml import toml_value
from mcpd.cli.install.launch import Offers, first_of, names_of
from mcpd.cli.scripts import normalized, requirement_name
from mcpd.client.targets.named import CommandTarget, FileTarget
from mcpd.errors import ConfigurationError
from mcpd.sources.lookup import FOLDERS, folder_at
from .manifest import (
    Author,
    Compatibility,
    Icon,
    Launch,
    ListedPrompt,
    ListedTool,
    Manifest,
    Repository,
    ServerPart,
    checked,
    make_question,
    split_variables,
)
from .project import (
    Person,
    Project,
    Selection,
    collect,
    distributions_of,
    ignored_here,
    imported_names,
    local_files,
    matches_pattern,
    read_project,
)

# The folder in a bundle with the files of the target. A folder keeps its own name below it, which may be the server's.
_SOURCES = "src"
_MAIN = "main.py"
_ICON = "icon.png"
_MAIN_TEXT = '''"""Starts the server of this bundle: written by `mcpd bundle`."""

import os

from mcpd.cli import main

source = os.path.join(os.path.dirname(os.path.abspath(__file__)), {inside})
main(["serve", "--stdio", {where}])
'''
_PYTHON = ">=3.11"
_PNG = b"\x89PNG\r\n\x1a\n"
_MAX_ICON_BYTES = 5 * 1024 * 1024
# Libraries whose servers mcpd runs without them.
_COMPATIBLE = ("mcp", "fastmcp")
_LIBRARIES = {"mcpd", *_COMPATIBLE}
_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


class BundleOptions(Struct, frozen=True, kw_only=True):
    """The values of the command line. Missing ones come from the project, or from the server itself."""

    name: str = ""
    version: str = ""
    description: str = ""
    author: str = ""
    icon: str = ""
    env: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()


class BundleSources(Struct, frozen=True, kw_only=True):
    """The files of a target, before it is started."""

    root: str
    project: Project
    # Bytes, or the path of a file to read, by the path in the bundle.
    files: dict[str, bytes | str]
    # The reason, by path, for each file that is left out.
    left_out: dict[str, str]
    # The folder in the bundle that corresponds to `root`.
    inside: str = _SOURCES
    warnings: tuple[str, ...] = ()


class Bundle(Struct, frozen=True, kw_only=True):
    manifest: Manifest
    files: dict[str, bytes | str]
    requirements: tuple[str, ...]
    warnings: tuple[str, ...]


def gather(target: object, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> BundleSources:
    """Collect the files of a target, and the metadata of its project.

    With a file, the data in its folder and the modules that it imports are collected. `include` and `exclude` are
    patterns of further files and of files to leave out. Raises ConfigurationError for a target without files.
    """
    if target is None or isinstance(target, CommandTarget):
        raise ConfigurationError("name the target to bundle: a Python file, or a folder with a server")
    if not isinstance(target, FileTarget):
        raise ConfigurationError(f"{target} has no files to bundle; use mcpd publish-info --remote for a URL")
    path, behind, inside = os.path.abspath(target.path), f":{target.object}" if target.object else "", _SOURCES
    warnings: tuple[str, ...] = ()
    if os.path.isdir(path):
        path, warnings = _served(path, exclude)
    if os.path.isdir(path):
        root = path
        # Some systems refuse other characters in a name.
        name = re.sub(r"[^\w .()+-]", "-", os.path.basename(root)).strip(" .") or _SOURCES
        inside = f"{_SOURCES}/{name}"
        project = read_project(root)
        selection = Selection(ignored=ignored_here(root), included=include, excluded=exclude)
        where = f"source + {behind!r}" if behind else "source"
    elif os.path.isfile(path):
        root = os.path.dirname(path)
        has_data = os.path.realpath(root) not in _shared_folders()
        if not has_data:
            warnings = (f"{root} has files of all kinds, so only modules were taken; name data files with --include",)
        selection = Selection(frozenset(local_files(path)), has_data, ignored_here(root), include, exclude)
        project = read_project(root, path)
        where = f"os.path.join(source, {os.path.basename(path) + behind!r})"
    else:
        raise ConfigurationError(
            f"{target} cannot be bundled: name a file or a folder; for a module, name the folder of its package"
        )

    found = collect(root, selection)
    files: dict[str, bytes | str] = {f"{inside}/{name}": path for name, path in found.files.items()}
    parts = ", ".join(ascii(part) for part in inside.split("/"))
    files[_MAIN] = _MAIN_TEXT.format(inside=parts, where=where).encode()
    return BundleSources(
        root=root, project=project, files=files, left_out=found.left_out, inside=inside, warnings=warnings
    )


def _served(folder: str, exclude: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    # A folder without `mcpd.toml` may be meant as a whole, or only for the one file with a server in it.
    if folder_at(folder).file:
        return folder, ()
    names = [entry.name for entry in os.scandir(folder) if entry.name.endswith(".py") and entry.is_file()]
    paths = [os.path.join(folder, name) for name in sorted(names) if not matches_pattern(name, name, exclude)]
    paths = [path for path in paths if {name.partition(".")[0] for name in imported_names(path)} & _LIBRARIES]
    imported = {each for path in paths for each in local_files(path) if each != path}
    servers = [path for path in paths if path not in imported]
    if not servers:
        return folder, ()
    first = os.path.basename(servers[0])
    if served := [name for name in FOLDERS if name != "apps" and os.path.isdir(os.path.join(folder, name))]:
        raise ConfigurationError(
            f"{folder} has the server {first} beside {served[0]}/, and a bundle contains only one of them: run mcpd "
            f"bundle {first}, or mcpd bundle {os.path.basename(folder)} --exclude {first}"
        )
    if len(servers) > 1:
        names = [os.path.basename(path) for path in servers]
        raise ConfigurationError(f"{folder} has more than one server, {', '.join(names)}: name the file to bundle")

    return servers[0], (f"{first} is the server of the bundle; the other files of its folder are its data",)


def _shared_folders() -> set[str]:
    # These folders hold files of many programs, so their other files are not data of the server.
    home = os.path.expanduser("~")
    there = (os.sep, home, tempfile.gettempdir(), *(os.path.join(home, name) for name in ("Desktop", "Downloads")))
    return {os.path.realpath(each) for each in there}


def unpack(gathered: BundleSources, folder: str) -> str:
    """Write the files into a folder, to start the server there. Returns the path of its program."""
    for name, source in gathered.files.items():
        path = os.path.join(folder, *name.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(source, bytes):
            with open(path, "wb") as file:
                file.write(source)
        else:
            shutil.copyfile(source, path)

    return os.path.join(folder, _MAIN)


def make_bundle(gathered: BundleSources, offers: Offers, said: BundleOptions) -> Bundle:
    """Make the bundle. `offers` are the lists of the server once it was started. Raises ConfigurationError."""
    project, files = gathered.project, dict(gathered.files)
    warnings = list(gathered.warnings)
    requirements = _requirements(gathered, offers, said, warnings)
    variables = split_variables(said.env)
    env = {name: f"${{user_config.{name.lower()}}}" for name in variables}
    command = Launch(command="uv", args=("run", "--directory", "${__dirname}", _MAIN), env=env)
    repository = _url(project, "repository", "source", "source code", "github", "code")
    icon, icons = _icon(said.icon, gathered.root, offers)
    if icon:
        files[_ICON] = icon
    name = said.name or project.name or offers.name or os.path.basename(gathered.root)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._").lower()[:100] or "server"
    manifest = Manifest(
        manifest_version="0.4",
        name=name,
        display_name=offers.title or ("" if offers.name == name else offers.name),
        version=_version(said.version or project.version or offers.version, warnings),
        description=said.description or project.description or _description(offers, name),
        long_description=offers.instructions if "\n" in offers.instructions.strip() else "",
        author=_author(said, project, warnings),
        repository=UNSET if repository is UNSET else Repository(url=repository),
        homepage=_url(project, "homepage", "home", "website"),
        documentation=_url(project, "documentation", "docs"),
        support=_url(project, "issues", "bug tracker", "tracker", "support"),
        icon=_ICON if icon else "",
        icons=icons,
        server=ServerPart(type="uv", entry_point=_MAIN, mcp_config=command),
        tools=tuple(
            ListedTool(name=str(tool.get("name")), description=str(tool.get("description") or ""))
            for tool in offers.tools
        ),
        prompts=_prompts(offers),
        prompts_generated=any(each not in offers.prompt_texts for each in names_of(offers.prompts)),
        keywords=project.keywords,
        license=project.license_text,
        compatibility=Compatibility(runtimes={"python": _node_range(project.requires_python) or _PYTHON}),
        user_config={
            name.lower(): make_question(name, value, os.environ.get(name, "")) for name, value in variables.items()
        },
    )
    files["manifest.json"] = checked(manifest)
    files["pyproject.toml"] = _pyproject(manifest, project, requirements)
    return Bundle(manifest=manifest, files=files, requirements=tuple(requirements), warnings=tuple(warnings))


def _requirements(gathered: BundleSources, offers: Offers, said: BundleOptions, warnings: list[str]) -> list[str]:
    project = gathered.project
    own = {
        name.removeprefix(f"{gathered.inside}/"): path for name, path in gathered.files.items() if isinstance(path, str)
    }
    tops = {name.partition("/")[0].removesuffix(".py") for name in own}
    beside = {os.path.basename(name).removesuffix(".py") for name in own}
    imported = distributions_of((path for path in own.values() if path.endswith(".py")), tops | beside)

    needs = [*(project.dependencies or ()), *said.requirements]
    names = {requirement_name(each) for each in needs}
    if "mcpd-server" not in names:
        extras = ["apps"] if offers.apps else []
        extras += ["compat"] if any(each in imported for each in _COMPATIBLE) else []
        extras += ["yaml"] if any(name.startswith(("prompts/", "skills/")) for name in own) else []
        extras += ["docs"] if any(name.startswith("docs/") or name.endswith(".ipynb") for name in own) else []
        shown = f"[{','.join(extras)}]" if extras else ""
        needs.insert(0, f"mcpd-server{shown}=={__version__}")
    for top, distributions in imported.items():
        if top in _COMPATIBLE or names & {normalized(each) for each in (top, *distributions)}:
            continue
        if project.dependencies is not None:
            if distributions:
                where = os.path.basename(project.file)
                warnings.append(f"{top} is imported, but {distributions[0]} is not among the dependencies in {where}")
        elif len(distributions) == 1:
            needs.append(f"{distributions[0]}=={distribution_version(distributions[0])}")
        else:
            where = f"is in {' and '.join(distributions)}" if distributions else "is not installed here"
            warnings.append(f"{top} is imported but {where}: name its package with --requirement")

    return needs


def _pyproject(manifest: Manifest, project: Project, requirements: list[str]) -> bytes:
    lines = [
        "[project]",
        f"name = {toml_value(normalized(manifest.name))}",
        f"version = {toml_value(manifest.version)}",
        f"requires-python = {toml_value(project.requires_python or _PYTHON)}",
        "dependencies = [",
        *(f"    {toml_value(each)}," for each in requirements),
        "]",
        "",
        "[tool.uv]",
        "package = false",
        "",
    ]
    return "\n".join(lines).encode()


def _version(text: str, warnings: list[str]) -> str:
    if _VERSION.fullmatch(text):
        return text
    numbers = re.match(r"v?(\d+(?:\.\d+)*)", text)
    version = ".".join([*(numbers[1].split(".") if numbers else []), "0", "0", "0"][:3])
    if text:
        warnings.append(
            f"the version {text} does not consist of three numbers, as bundles need: using {version} instead"
        )

    return version


def _node_range(specifiers: str) -> str:
    # Hosts read a range of Python versions in the syntax of npm's semver.
    def whole(parts: list[int]) -> str:
        return ".".join(map(str, (parts + [0, 0])[:3]))

    found = []
    for specifier in specifiers.split(","):
        match = re.fullmatch(r"\s*(>=|<=|>|<|==|~=)\s*(\d+(?:\.\d+)*)(\.\*)?[\w.+]*\s*", specifier)
        if match is None:
            continue
        sign, parts = match[1], [int(part) for part in match[2].split(".")][:3]
        if sign == "==" and not match[3] and len(parts) == 3:
            found.append(f"={whole(parts)}")
        elif sign in ("==", "~="):
            kept = parts[:-1] if sign == "~=" else parts
            found.append(f">={whole(parts)}")
            found += [f"<{whole([*kept[:-1], kept[-1] + 1])}"] if kept else []
        else:
            found.append(f"{sign}{whole(parts)}")

    return " ".join(found)


def _description(offers: Offers, name: str) -> str:
    first = offers.instructions.strip().partition("\n")[0]
    if first:
        return first
    tools = f": {first_of(names_of(offers.tools), 5)}" if offers.tools else ""
    return f"{offers.title or name}{tools}"


def _author(said: BundleOptions, project: Project, warnings: list[str]) -> Author:
    person = Person(said.author) if said.author else project.author
    if not person.name:
        warnings.append("no author is named: use --author NAME, or `authors` in pyproject.toml")
    return Author(name=person.name or "unknown", email=person.email if "@" in person.email else UNSET)


def _url(project: Project, *labels: str) -> str | UnsetType:
    return next((project.urls[label] for label in labels if "://" in project.urls.get(label, "")), UNSET)


def _prompts(offers: Offers) -> tuple[ListedPrompt, ...]:
    found = []
    for prompt in offers.prompts:
        name = str(prompt.get("name"))
        if name in offers.prompt_texts:
            arguments = [each.get("name") for each in prompt.get("arguments") or () if isinstance(each, dict)]
            found.append(
                ListedPrompt(
                    name=name,
                    text=offers.prompt_texts[name],
                    description=str(prompt.get("description") or ""),
                    arguments=tuple(str(each) for each in arguments),
                )
            )

    return tuple(found)


def _icon(path: str, root: str, offers: Offers) -> tuple[bytes, tuple[Icon, ...]]:
    data = b""
    beside = os.path.join(root, "icon.png")
    if path or os.path.isfile(beside):
        with explained(path or beside), open(path or beside, "rb") as file:
            data = file.read(_MAX_ICON_BYTES + 1)
        if not data.startswith(_PNG) or len(data) > _MAX_ICON_BYTES or len(data) < 24:
            raise ConfigurationError(f"{path or beside}: an icon must be a PNG file of up to 5 MiB, best 512 by 512")

    for icon in () if data else offers.icons:
        data = data or _of_data_url(str(icon.get("src")))
    if not data:
        return b"", ()
    width, height = struct.unpack(">II", data[16:24])
    return data, (Icon(src="icon.png", size=f"{width}x{height}"),)


def _of_data_url(url: str) -> bytes:
    head, comma, text = url.partition(",")
    if not comma or not head.startswith("data:image/png") or not head.endswith(";base64"):
        return b""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return b""

    return data if data.startswith(_PNG) and 24 <= len(data) <= _MAX_ICON_BYTES else b""
