"""Makes entries of the catalog from functions and descriptions, for `@server.tool` and the like.

Checks the author's options, and names what is wrong. Has no access to the server.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.json import decode
from msgspec.structs import fields, replace

from mcpd.errors import RegistrationError
from mcpd.protocol.types.base import Meta
from mcpd.protocol.types.features import (
    Annotations,
    CallToolResult,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
    ToolAnnotations,
)
from mcpd.server.context.exchange import Exchange
from mcpd.server.extensions.base import Extension, ResourceAddition
from mcpd.server.extensions.builtin import FILES
from mcpd.server.functions.annotations import Function
from mcpd.server.functions.signature import Callee, bind
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.content import encode_data, is_content
from mcpd.server.registry.resources import FixedResource, FunctionResource, FunctionTemplate
from mcpd.server.registry.tools import Finisher, FunctionTool, TimedTool
from mcpd.server.registry.uri_template import PLAIN, UriTemplate, as_uri
from .context import context_type
from .metadata import checked, checked_seconds, hinted, hints_of, icons_of, meta_of, offer, tagged

if TYPE_CHECKING:
    from mcpd.server.extensions.files.callee import FileTool
    from mcpd.server.extensions.files.extension import FilesExtension
    from mcpd.server.functions.json_schema import SchemaCallee
    from mcpd.server.registry.caching import CacheHint
    from mcpd.server.registry.options import DescribedPrompt, DescribedResource
    from mcpd.server.registry.prompts import FunctionPrompt
    from .options import ToolOptions

# -- tools -------------------------------------------------------------------------------------


def tool_entry(
    catalog: Catalog, installed: Collection[Extension], function: Function, options: ToolOptions
) -> FunctionTool:
    """Return a tool. `options` are the options of its decorator, including those of extensions."""
    is_data = options.get("structured_output") is not False
    bound = bind(
        function,
        context_type=context_type,
        is_content=is_content if is_data else lambda kind: True,
        overrides=catalog.overrides,
    )
    name = _checked_name(options.get("name") or bound.name)
    where = f"tool {name!r}"
    callee, check_output = _with_schemas(where, function, bound, options)
    described = _described(options, bound, where)
    meta = hinted(described.pop("meta"), options, where)
    own = _options_of(where, installed, options)
    # Extensions take their own keys out of `meta`.
    added = ((extension.id, extension.tool(name, own.get(extension.id, {}), meta)) for extension in installed)
    additions = {id: addition for id, addition in added if addition is not None}
    if (files := _files_of(catalog, bound, name, where, options)) is not None:
        additions[FILES], callee, meta = files, files.callee, files.callee.hints(meta)
    output_schema = options.get("output_schema")
    executions = (getattr(addition, "execution", None) for addition in additions.values())

    tool = Tool(
        name=name,
        execution=next(filter(None, executions), None),
        annotations=hints_of(options.get("annotations"), ToolAnnotations, where),
        input_schema={},
        output_schema=None if output_schema is None else dict(output_schema),
        meta=meta or None,
        **described,
    )

    if options.get("process"):
        from mcpd.server.processes.callee import ProcessCallee  # few servers have such tools

        callee = ProcessCallee(callee, name, where, lifespan=catalog.lifespan, **options)
    elif wrong := next((each for each in _OF_PROCESSES if options.get(each)), ""):
        raise RegistrationError(f"{where}, {wrong}: only a tool with process=True has this option")
    seconds = options.get("timeout")
    timeout = catalog.tool_timeout if seconds is None else checked_seconds(seconds, f"{where}, timeout")
    entry = (FunctionTool if timeout is None else TimedTool)(
        checked(tool, where),
        callee,
        extension_meta=additions,
        requires=next((id for id, addition in additions.items() if addition.is_required), None),
        check_output=check_output,
        finish=_finisher(catalog, installed, name),
    )
    if not is_data:
        entry.return_text_only()
    entry.shows_errors = catalog.shows_errors
    entry.is_finished = any(extension.has_results for extension in installed if extension.id in additions)
    entry.wraps_for = frozenset(extension.id for extension in installed if extension.wraps_values)
    entry.active_extensions = catalog.active_extensions
    offer(catalog, entry, options, where)
    entry.timeout = timeout
    return entry


_OF_PROCESSES = ("memory", "calls", "process_start")


def _files_of(catalog: Catalog, bound: Callee, name: str, where: str, options: ToolOptions) -> FileTool | None:
    if "mcpd.server.extensions.files.file" not in sys.modules:  # no function is annotated with `File`
        return None
    from mcpd.server.extensions.files.callee import RETURNED, file_tool

    files = file_tool(bound, name, where, catalog.need)
    if files is not None and (options.get("process") or options.get("input_schema") is not None):
        raise RegistrationError(f"{where}: a tool with process=True or input_schema=… cannot have a File")
    extension: FilesExtension | None = None if files is None or not files.returns_files else catalog.need(FILES)
    if extension is not None and catalog.templates.get(RETURNED, frozenset()) is None:
        entry = resource_entry(catalog, (), RETURNED, extension.returned, {"name": "returned-files"})
        catalog.templates.add(entry)  # type: ignore[arg-type]  # its URI has variables
    return files


def _with_schemas(
    where: str, function: Function, callee: Callee, options: ToolOptions
) -> tuple[Any, Callable[[Any], list[str]] | None]:
    input_schema, output_schema = options.get("input_schema"), options.get("output_schema")
    if input_schema is None and output_schema is None:
        return callee, None
    from mcpd.server.functions.json_schema import JsonSchema, SchemaCallee  # needs an extra

    caller: Callee | SchemaCallee = callee
    if input_schema is not None:
        caller = SchemaCallee(function, input_schema, callee, f"{where}, input schema")
    if output_schema is None:
        return caller, None
    schema = JsonSchema(output_schema, f"{where}, output schema")
    return caller, lambda content: schema.problems(_as_json(content))


def _finisher(catalog: Catalog, installed: Collection[Extension], name: str) -> Finisher:
    def finish(result: CallToolResult, exchange: Exchange, has_schema: bool) -> CallToolResult:
        active = catalog.active_extensions(exchange)
        for extension in installed:
            if extension.has_results:
                is_active = extension.id in active
                result = extension.finish(result, tool=name, is_active=is_active, has_schema=has_schema)
        return result

    return finish


def _options_of(
    where: str,
    installed: Collection[Extension],
    options: Mapping[str, Any],
) -> dict[str, dict[str, Any]]:
    given: dict[str, dict[str, Any]] = {}
    known = {extension.id: extension for extension in installed}
    for name, values in (options.get("extensions") or {}).items():
        if name not in known:
            raise RegistrationError(f"{where}, extensions: unknown extension {name!r}; known are {', '.join(known)}")
        for option in values:
            if option not in known[name].tool_options:
                there = ", ".join(known[name].tool_options) or "none"
                raise RegistrationError(
                    f"{where}, extensions: {name} has no option {option!r}; its options are {there}"
                )
        given[name] = dict(values)

    for extension in installed:
        for option in extension.tool_options:
            if option in options:
                given.setdefault(extension.id, {})[option] = options[option]
    return given


def _as_json(content: Any) -> Any:
    return decode(content if isinstance(content, Raw) else encode_data(content))


_AS_LETTERS = str.maketrans("_-.", "aaa")


def _checked_name(name: Any) -> str:
    # Return a valid tool name: 1 to 128 of A-Z a-z 0-9 _ - . (Spec: 2025-11-25 server/tools, tool names).
    allowed = isinstance(name, str) and name.isascii() and name.translate(_AS_LETTERS).isalnum()
    if not allowed or not 1 <= len(name) <= 128:
        raise RegistrationError(f"tool name {name!r}: use 1 to 128 letters, digits, '_', '-' and '.'")
    return str(name)


# -- resources ---------------------------------------------------------------------------------


def resource_entry(
    catalog: Catalog,
    installed: Collection[Extension],
    uri: str,
    function: Function,
    options: DescribedResource,
) -> FunctionResource | FunctionTemplate:
    """Return a resource, or a template if its URI has `{variables}`. An extension may change it."""
    callee = bind(function, context_type=context_type, overrides=catalog.overrides)
    where = f"resource {uri!r}"
    template = UriTemplate(uri) if uri.strip(PLAIN) else None
    variables = () if template is None else template.variables
    _check_variables(uri, variables, callee)

    shared = {
        **_described(options, callee, where),
        "name": options.get("name") or callee.name,
        "mime_type": options.get("mime_type"),
        "annotations": hints_of(options.get("annotations"), Annotations, where),
    }
    requires, addition = _addition(installed, uri, shared["mime_type"], shared["meta"], is_fixed=False)
    finish = None
    if addition is not None:
        shared["mime_type"], shared["meta"], finish = addition.mime_type, addition.meta, addition.finish

    unsafe = _unsafe_paths(options.get("unsafe_paths", ()), variables, where)
    entry: FunctionResource | FunctionTemplate
    if template is not None and variables:
        described = checked(ResourceTemplate(uri_template=uri, **shared), where)
        entry = FunctionTemplate(described, template, callee, requires=requires, finish=finish, unsafe_paths=unsafe)
    else:
        resource = checked(Resource(uri=checked_uri(uri), size=options.get("size"), **shared), where)
        entry = FunctionResource(resource, callee, requires=requires, finish=finish)
    offer(catalog, entry, options, where)
    entry.hint = _hint_of(catalog, options.get("cache"), where)
    return entry


def _hint_of(catalog: Catalog, given: CacheHint | None, where: str) -> Callable[[], CacheHint] | None:
    # Return a function for the hint of a resource. Visibility rules make it private, whatever its author set.
    if given is None:
        return None
    from mcpd.server.registry.caching import CacheHint, checked_hint  # few servers have any

    hint = checked_hint(given, f"{where}, cache")
    assert hint is not None
    private = CacheHint(hint.ttl)
    return lambda: hint if catalog.rules is None else private


def text_entry(
    installed: Collection[Extension], uri: str, text: str | bytes, name: str, mime_type: str | None
) -> FixedResource:
    """Return a resource with fixed content."""
    requires, addition = _addition(installed, uri, mime_type, None, is_fixed=True)
    where = f"resource {uri!r}"
    if not isinstance(text, (str, bytes)):
        raise RegistrationError(f"{where}: its content must be str or bytes, not {type(text).__name__}")

    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise RegistrationError(f"{where}: its text cannot be sent: {error}") from None

    resource = checked(Resource(uri=checked_uri(uri), name=name, mime_type=mime_type, size=len(data)), where)
    if addition is not None:
        resource = replace(resource, mime_type=addition.mime_type, meta=addition.meta)
    finish = None if addition is None else addition.finish
    return FixedResource(resource, text, requires=requires, finish=finish)


def _addition(
    installed: Collection[Extension], uri: str, mime_type: str | None, meta: Meta, *, is_fixed: bool
) -> tuple[str | None, ResourceAddition | None]:
    # Return the id of the extension that changes a resource, and its changes.
    for extension in installed:
        addition = extension.resource(uri, mime_type, meta, is_fixed=is_fixed)
        if addition is not None:
            return extension.id, addition
    return None, None


def checked_uri(uri: str) -> str:
    """Return a valid URI: a scheme, a colon, and the characters of RFC 3986 (S25-063, S26-115)."""
    scheme, colon, rest = uri.partition(":")
    valid = scheme[:1].isalpha() and all(c.isascii() and (c.isalnum() or c in "+-.") for c in scheme)
    if not colon or not rest or not valid:
        raise RegistrationError(f"resource URI {uri!r}: expected scheme:rest, such as notes://today")
    if as_uri(uri) != uri:
        raise RegistrationError(f"resource URI {uri!r}: has characters that must be encoded; use {as_uri(uri)!r}")
    return uri


def _unsafe_paths(given: bool | Collection[str], variables: Sequence[str], where: str) -> Collection[str]:
    if given is True and not variables:
        raise RegistrationError(f"{where}, unsafe_paths: its URI has no variables; leave the option out")
    if isinstance(given, bool):
        return variables if given else ()
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Collection):
        raise RegistrationError(f"{where}, unsafe_paths: expected True, or names of variables, not {given!r}")
    unknown = [name for name in names if name not in variables]
    if unknown:
        raise RegistrationError(f"{where}, unsafe_paths: the URI has no variable {unknown[0]!r}")
    return names


def _check_variables(uri: str, variables: Sequence[str], callee: Callee) -> None:
    parameters = fields(callee.arguments)
    unknown = set(variables).difference(parameter.encode_name for parameter in parameters)
    if unknown:
        raise RegistrationError(f"resource {uri!r}: the function has no parameter for {', '.join(sorted(unknown))}")
    without = [each.encode_name for each in parameters if each.required and each.encode_name not in variables]
    if without:
        raise RegistrationError(f"resource {uri!r}: the URI has no variable for the parameter {', '.join(without)}")


# -- prompts -----------------------------------------------------------------------------------


def prompt_entry(catalog: Catalog, function: Function, options: DescribedPrompt) -> FunctionPrompt:
    """Return a prompt; its parameters are the arguments."""
    from mcpd.server.registry.prompts import FunctionPrompt  # many servers have none

    callee = bind(function, context_type=context_type, overrides=catalog.overrides)
    name = options.get("name") or callee.name
    where = f"prompt {name!r}"
    prompt = Prompt(name=name, **_described(options, callee, where))
    entry = FunctionPrompt(checked(prompt, where), callee)
    offer(catalog, entry, options, where)
    return entry


def _described(options: DescribedPrompt, callee: Callee, where: str) -> dict[str, Any]:
    # The members that tools, resources and prompts share.
    description = options.get("description")
    return {
        "title": options.get("title"),
        "description": (callee.description if description is None else description) or None,
        "icons": icons_of(options.get("icons", ()), where),
        "meta": tagged(meta_of(options.get("meta"), where), options, where),
    }
