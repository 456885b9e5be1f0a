"""From functions and descriptions to entries of the catalog: what `@server.tool` and its like make.

Checks what the author wrote, and names what is wrong with it. Never touches a server: it gets what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.json import decode
from msgspec.structs import fields

from ..context import Context
from ..errors import RegistrationError
from ..extensions.ui.gate import UI, has_ui, is_app_type
from ..registry.catalog import Catalog
from ..registry.content import encode_data, is_content
from ..registry.prompts import PromptEntry
from ..registry.resources import Finisher, ResourceEntry, TemplateEntry
from ..registry.signature import Callee, bind
from ..registry.tools import Extra, ToolEntry
from ..registry.uri_template import UriTemplate, as_uri
from ..types.content import Annotations
from ..types.prompts import Prompt
from ..types.resources import Resource, ResourceTemplate
from ..types.tools import CallToolResult, Tool, ToolAnnotations
from .described import checked, hints_of, icons_of, meta_of

if TYPE_CHECKING:
    from ..extensions.ui.apps import Apps
    from ..extensions.ui.tools import Visibility
    from .options import Icons

__all__ = [
    "checked_uri",
    "prompt_entry",
    "resource_entry",
    "text_entry",
    "tool_entry",
]

# -- tools -------------------------------------------------------------------------------------


def tool_entry(
    catalog: Catalog,
    get_apps: Callable[[], Apps],
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Icons = (),
    meta: Mapping[str, Any] | None = None,
    annotations: ToolAnnotations | Mapping[str, Any] | None = None,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    ui: str | None = None,
    ui_when: Callable[..., Any] | None = None,
    visibility: Visibility | None = None,
) -> ToolEntry:
    """A tool. `get_apps` is asked only if the tool has to do with MCP Apps."""
    callee: Any = bind(function, context_type=Context, is_content=is_content)
    name = _checked_name(name or callee.name)
    where = f"tool {name!r}"
    check_output = None
    if input_schema is not None or output_schema is not None:
        from ..registry.json_schema import JsonSchema, SchemaCallee  # needs an extra

        if input_schema is not None:
            callee = SchemaCallee(function, input_schema, callee, f"tool {name!r}, input schema")
        if output_schema is not None:
            schema = JsonSchema(output_schema, f"tool {name!r}, output schema")
            check_output = lambda content: schema.problems(_as_json(content))  # noqa: E731
    own_meta = meta_of(meta, where)
    extras: dict[str, Extra] = {}
    requires = None
    if ui is not None or visibility is not None or ui_when is not None or has_ui(own_meta):
        found = get_apps().tool_ui(name, (ui, visibility, ui_when), own_meta)
        extras[UI] = found
        requires = UI if found.is_app_only else None
    tool = Tool(
        name=name,
        title=title,
        description=description if description is not None else callee.description or None,
        annotations=hints_of(annotations, ToolAnnotations, where),
        icons=icons_of(icons, where),
        input_schema={},
        output_schema=dict(output_schema) if output_schema is not None else None,
        meta=own_meta or None,
    )

    def finish(result: CallToolResult, ctx: Context, has_schema: bool) -> CallToolResult:
        from ..extensions.ui.results import finished  # few tools have anything for a View

        return finished(result, has_apps=UI in catalog.audience(ctx), has_schema=has_schema, name=name)

    checked(tool, where)
    return ToolEntry(tool, callee, extras=extras, requires=requires, check_output=check_output, finish=finish)


def _as_json(content: Any) -> Any:
    """Structured content as plain JSON values, for a validator."""
    return decode(content if isinstance(content, Raw) else encode_data(content))


def _checked_name(name: Any) -> str:
    """Spec: 2025-11-25 server/tools, tool names: 1 to 128 of A-Z a-z 0-9 _ - . and nothing else."""
    allowed = isinstance(name, str) and all(c.isascii() and (c.isalnum() or c in "_-.") for c in name)
    if not allowed or not 1 <= len(name) <= 128:
        raise RegistrationError(f"tool name {name!r}: use 1 to 128 letters, digits, '_', '-' and '.'")
    return str(name)


# -- resources ---------------------------------------------------------------------------------


def resource_entry(
    get_apps: Callable[[], Apps],
    uri: str,
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Icons = (),
    meta: Mapping[str, Any] | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    annotations: Annotations | Mapping[str, Any] | None = None,
) -> ResourceEntry | TemplateEntry:
    """A resource, or with `{variables}` in its URI a template; under `ui://` a View, for clients with Apps only."""
    callee = bind(function, context_type=Context)
    where = f"resource {uri!r}"
    template = UriTemplate(uri)
    _check_variables(uri, template.variables, callee)
    own_meta = meta_of(meta, where)
    requires: str | None = None
    finish: Finisher | None = None
    if uri.startswith("ui://"):
        requires = UI
        mime_type, own_meta, finish = get_apps().dynamic(uri, mime_type, own_meta)
    else:
        _refuse_app_type(uri, mime_type)
    shared: dict[str, Any] = {
        "name": name or callee.name,
        "title": title,
        "description": (description if description is not None else callee.description) or None,
        "icons": icons_of(icons, where),
        "meta": own_meta,
        "mime_type": mime_type,
        "annotations": hints_of(annotations, Annotations, where),
    }
    if template.variables:
        described = checked(ResourceTemplate(uri_template=uri, **shared), where)
        return TemplateEntry(described, template, callee, requires=requires, finish=finish)
    resource = checked(Resource(uri=checked_uri(uri), size=size, **shared), where)
    return ResourceEntry(resource, callee, requires=requires, finish=finish)


def text_entry(uri: str, text: str | bytes, name: str, mime_type: str | None) -> ResourceEntry:
    """A resource whose content is known already."""
    _refuse_app_type(uri, mime_type)
    where = f"resource {uri!r}"
    if not isinstance(text, (str, bytes)):
        raise RegistrationError(f"{where}: its content is str or bytes, not {type(text).__name__}")
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise RegistrationError(f"{where}: its text cannot be sent: {error}") from None
    resource = checked(Resource(uri=checked_uri(uri), name=name, mime_type=mime_type, size=len(data)), where)
    return ResourceEntry(resource, content=text)


def checked_uri(uri: str) -> str:
    """Spec: RFC 3986: a scheme, a colon, and the characters of a URI; S25-063, S26-115."""
    scheme, colon, rest = uri.partition(":")
    valid = scheme[:1].isalpha() and all(c.isascii() and (c.isalnum() or c in "+-.") for c in scheme)
    if not colon or not rest or not valid:
        raise RegistrationError(f"resource URI {uri!r}: expected scheme:rest, such as notes://today")
    if as_uri(uri) != uri:
        raise RegistrationError(f"resource URI {uri!r}: has characters that have to be encoded; write {as_uri(uri)!r}")
    return uri


def _refuse_app_type(uri: str, mime_type: str | None) -> None:
    if is_app_type(mime_type):
        raise RegistrationError(f"resource {uri!r} is {mime_type}: the URI of such a View begins with ui:// (APP-S-01)")


def _check_variables(uri: str, variables: Sequence[str], callee: Callee) -> None:
    parameters = fields(callee.arguments)
    unknown = set(variables).difference(parameter.name for parameter in parameters)
    if unknown:
        raise RegistrationError(f"resource {uri!r}: the function has no parameter for {', '.join(sorted(unknown))}")
    without = [parameter.name for parameter in parameters if parameter.required and parameter.name not in variables]
    if without:
        raise RegistrationError(
            f"resource {uri!r}: nothing in the URI gives the parameter {', '.join(without)} a value"
        )


# -- prompts -----------------------------------------------------------------------------------


def prompt_entry(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Icons = (),
    meta: Mapping[str, Any] | None = None,
) -> PromptEntry:
    """A prompt; its parameters are the arguments."""
    callee = bind(function, context_type=Context)
    name = name or callee.name
    where = f"prompt {name!r}"
    prompt = Prompt(
        name=name,
        title=title,
        description=(description if description is not None else callee.description) or None,
        icons=icons_of(icons, where),
        meta=meta_of(meta, where),
    )
    return PromptEntry(checked(prompt, where), callee)
