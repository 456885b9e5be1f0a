"""`fastmcp.tools`, `fastmcp.prompts` and `fastmcp.resources`: an author's functions and files as components."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, get_origin
from urllib.parse import parse_qs, quote, unquote

import pydantic_core
from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    TypeAdapter,
    ValidationError as PydanticValidationError,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema

from mcpd.compat.contents import HoldsFile, MimeType, resource_classes
from mcpd.compat.errors import FastMCPError, McpError, PromptError, ResourceError, ToolError, ValidationError
from mcpd.compat.install import refuse
from mcpd.compat.lowlevel.server import resource_contents
from mcpd.compat.sdk.components import PromptArgument
from mcpd.compat.sdk.functions import dereferenced
from mcpd.compat.types import features
from mcpd.compat.types.features import Annotations, ContentBlock, Resource as ListedResource, TextContent, Uri
from mcpd.protocol.printable import printable
from mcpd.transports.routes import values_across
from .base import Component, check_items, given, mark, public_meta, with_mark
from .functions import Function, ToolResult, described, dropped_lines, is_object, pruned, result_schema, tool_result

log = logging.getLogger("mcpd")

NotSet: Any = object()
"""The default of `output_schema`: the schema of the return annotation."""


class Tool(Component):
    """A tool. Subclasses implement `run`."""

    KEY_PREFIX: ClassVar[str] = "tool"

    parameters: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: features.ToolAnnotations | None = None
    execution: Any = None
    timeout: float | None = None
    return_type: Any = Field(default=None, exclude=True)
    serializer: Any = Field(default=None, exclude=True)

    @classmethod
    def from_function(cls, fn: Any, **options: Any) -> FunctionTool:
        """Return a function as a tool, with the options of `@mcp.tool`. Raises ValueError."""
        return cls._of_function(fn, **with_mark(fn, "tool", options))

    @classmethod
    def _of_function(
        cls,
        fn: Any,
        *,
        name: str | None = None,
        annotations: Any = None,
        output_schema: Any = NotSet,
        exclude_args: list[str] | None = None,
        task: Any = None,
        **options: Any,
    ) -> FunctionTool:
        function = Function(fn, "tools", name=name)
        if task not in (None, False) and getattr(task, "mode", None) == "required":
            refuse("a tool with task=required", "fastmcp")
        if isinstance(annotations, dict):
            annotations = features.ToolAnnotations(**annotations)
        for hidden in exclude_args or ():
            parameter = function.signature.parameters.get(hidden)
            if parameter is None:
                raise ValueError(f"Parameter '{hidden}' in exclude_args does not exist in function.")
            if parameter.default is parameter.empty:
                raise ValueError(f"Parameter '{hidden}' in exclude_args must have a default value.")
            function.arguments.pop(hidden, None)

        description, parameters = _input_schema(function)
        schema = result_schema(function.returns) if output_schema is NotSet else output_schema
        # Before 2026-07-28 structured content is an object (2025-11-25 server/tools, output schema).
        if isinstance(schema, dict) and not is_object(schema):
            raise ValueError(
                f"Output schemas must represent object types due to MCP spec limitations. Received: {schema!r}"
            )

        made = FunctionTool(
            fn=function.fn,
            name=function.component_name,
            parameters=parameters,
            output_schema=schema or None,
            annotations=annotations,
            return_type=function.returns,
            **{"description": description, **given(options)},
        )
        made._function = function
        return made

    @classmethod
    def from_tool(cls, tool: Any, **options: Any) -> Tool:
        """Return a copy of a tool with some members changed. Raises NotHere for changed arguments."""
        if options.get("transform_args") or options.get("transform_fn"):
            refuse("Tool.from_tool(transform_args, transform_fn)", "fastmcp")

        made = tool if isinstance(tool, Tool) else cls.from_function(tool)
        return made.model_copy(update={key: value for key, value in given(options).items() if value is not NotSet})

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        raise NotImplementedError("Subclasses must implement run()")

    def convert_result(self, raw_value: Any) -> ToolResult:
        """Return the value of a function as a result. Raises ToolError if it does not match the output schema."""
        schema = self.output_schema
        if self.serializer is not None and not isinstance(raw_value, (str, ToolResult)) and schema is None:
            return ToolResult(self.serializer(raw_value))
        try:
            return tool_result(raw_value, schema, self.return_type)
        except ValueError as error:
            raise ToolError(
                f"Could not serialize the return value of tool {self.name!r} for its output schema: {error}. If this "
                "is unexpected, set the tool's output_schema to None to disable automatic serialization."
            ) from error

    def to_mcp_tool(self, **changed: Any) -> features.Tool:
        name = changed.get("name", self.name)
        title = self.title or (self.annotations.title if self.annotations else None)
        schemas = {"inputSchema": self.parameters, "outputSchema": self.output_schema}
        return self._listed(
            features.Tool,
            changed,
            title=title or name.replace("_", " ").replace("-", " ").title(),
            annotations=self.annotations,
            execution=self.execution,
            **{key: schema and dereferenced(schema) for key, schema in schemas.items()},
        )


class FunctionTool(Tool):
    fn: Callable[..., Any] = Field(exclude=True)
    run_in_thread: bool = True

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Call the function. Raises ValidationError for invalid arguments, and McpError after its `timeout`."""
        try:
            values = self._function.validated(arguments)
        except PydanticValidationError as error:
            raise ValidationError(str(error), log_level=logging.WARNING) from error

        # A TimeoutError of the function itself is not the tool's time limit.
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                return self.convert_result(await self._function.call(values, in_thread=self.run_in_thread))
        except TimeoutError:
            if not limit.expired():
                raise
            raise McpError(-32000, f"Tool '{self.name}' execution timed out after {self.timeout}s") from None


def _input_schema(function: Function) -> tuple[str | None, dict[str, Any]]:
    # Returns the description, and the schema of the arguments, which the docstring may describe.
    description, texts = described(function.doc)
    for line in dropped_lines(function.doc):
        text = 'function %s: the line %r of its docstring reaches no client, since it is not "name: text"'
        log.warning(text, printable(function.name), printable(line))

    # Titles that pydantic derives from names are removed, and titles that the author wrote are restored.
    raw = function.adapter.json_schema()
    titles = {
        name: member.get("title") for name, member in raw.get("properties", {}).items() if isinstance(member, dict)
    }
    schema = pruned(raw)
    default_title = GenerateJsonSchema().get_title_from_name
    for name, member in schema.get("properties", {}).items():
        if isinstance(titles.get(name), str) and titles[name] != default_title(name):
            member["title"] = titles[name]
        if name in texts and "description" not in member:
            member["description"] = texts[name]
    return description, schema


def tool(name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
    """Mark a function as a tool for `mcp.add_tool`: `@tool`, `@tool("name")` or `@tool(name=…)`."""
    return mark("tool", name_or_fn, name, options)


PromptMessage = features.PromptMessage


class Message(BaseModel):
    """A message. A string becomes a text block, and data become one with their JSON."""

    role: Literal["user", "assistant"]
    content: Any

    def __init__(self, content: Any, role: Literal["user", "assistant"] = "user") -> None:
        if not isinstance(content, ContentBlock):
            text = content if isinstance(content, str) else pydantic_core.to_json(content, fallback=str).decode()
            content = TextContent(text=text)
        super().__init__(role=role, content=content)

    def to_mcp_prompt_message(self) -> PromptMessage:
        return PromptMessage(role=self.role, content=self.content)


class PromptResult(BaseModel):
    messages: list[Message]
    description: str | None = None
    meta: dict[str, Any] | None = None

    def __init__(self, messages: Any, description: str | None = None, meta: dict[str, Any] | None = None) -> None:
        if isinstance(messages, str):
            messages = [Message(messages)]
        check_items("messages", messages, Message, "str or")
        super().__init__(messages=messages, description=description, meta=meta)

    def to_mcp_prompt_result(self) -> features.GetPromptResult:
        messages = [message.to_mcp_prompt_message() for message in self.messages]
        return features.GetPromptResult(description=self.description, messages=messages, meta=self.meta)


class Prompt(Component):
    """A prompt. Subclasses implement `render`."""

    KEY_PREFIX: ClassVar[str] = "prompt"

    arguments: list[PromptArgument] | None = None

    @classmethod
    def from_function(cls, fn: Any, *, name: str | None = None, **options: Any) -> FunctionPrompt:
        """Return a function as a prompt. Its parameters are the arguments. Raises ValueError."""
        options = with_mark(fn, "prompt", {"name": name, **options})
        name = options.pop("name")
        function = Function(fn, "prompts", name=name)
        description, texts = described(function.doc)
        schema = pruned(function.adapter.json_schema())
        required = schema.get("required", ())
        arguments = [
            PromptArgument(
                name=key,
                description=_argument_description(function, key, member.get("description") or texts.get(key)),
                required=key in required,
            )
            for key, member in schema.get("properties", {}).items()
        ]
        options = {"description": description, **given(options)}
        made = FunctionPrompt(fn=function.fn, name=function.component_name, arguments=arguments, **options)
        made._function = function
        return made

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        raise NotImplementedError("Subclasses must implement render()")

    def convert_result(self, raw_value: Any) -> PromptResult:
        if isinstance(raw_value, PromptResult):
            return raw_value
        if isinstance(raw_value, (str, Message, PromptMessage)):
            raw_value = [raw_value]
        if not isinstance(raw_value, (list, tuple)):
            raise TypeError(f"Prompt must return str, list[Message], or PromptResult, got {type(raw_value).__name__}")

        messages = [_message(item) for item in raw_value]
        return PromptResult(messages, description=self.description, meta=public_meta(self.meta))

    async def result(self, arguments: dict[str, Any] | None) -> PromptResult:
        return self.convert_result(await self.render(arguments))

    def to_mcp_prompt(self, **changed: Any) -> features.Prompt:
        return self._listed(features.Prompt, changed, arguments=self.arguments or [])


def _message(item: Any) -> Any:
    if isinstance(item, PromptMessage):
        return Message(item.content, item.role)
    return Message(item) if isinstance(item, str) else item


class FunctionPrompt(Prompt):
    fn: Callable[..., Any] = Field(exclude=True)

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Call the function. Raises ValidationError for missing arguments, and otherwise PromptError."""
        sent = arguments or {}
        missing = {argument.name for argument in self.arguments or () if argument.required} - sent.keys()
        if missing:
            raise ValidationError(f"Missing required arguments: {missing}", log_level=logging.WARNING)

        try:
            known = self._function.arguments
            values = self._function.validated({key: self._parsed(key, sent[key]) for key in sent if key in known})
            return self.convert_result(await self._function.call(values))
        except FastMCPError:
            raise
        except Exception as error:
            raise PromptError(f"Error rendering prompt {self.name!r}: {error}") from error

    def _parsed(self, name: str, value: Any) -> Any:
        # Returns an argument, which clients send as text. Values of other types are JSON.
        hint, written = self._function.hints.get(name), self._function.arguments[name].annotation
        if hint is None or hint is str or not isinstance(value, str):
            return value

        adapter: TypeAdapter[Any] = TypeAdapter(hint)
        try:
            try:
                parsed = adapter.validate_python(value)
            except ValueError:
                return adapter.validate_json(value)
            # If the annotation allows more than text, a value that is valid JSON is parsed: "[1]" for `list[int] |
            # str`.
            try:
                return parsed if isinstance(parsed, str) else adapter.validate_json(value)
            except ValueError:
                return parsed
        except (ValueError, TypeError) as error:
            raise PromptError(
                f"Could not convert argument '{name}' with value '{value}' to expected type {written}. Error: {error}"
            ) from error


def _argument_description(function: Function, name: str, text: str | None) -> str | None:
    # Returns the description of an argument. For other types than text it includes the JSON schema.
    written = function.arguments[name].annotation
    if written in (str, function.signature.empty):
        return text

    # The annotation as written: here the text in `Annotated[int, "text"]` is not part of the schema.
    hint = function.hints.get(name, written) if isinstance(written, str) else written
    try:
        schema = json.dumps(TypeAdapter(hint).json_schema(), separators=(",", ":"))
    except Exception:  # a type without a schema
        return text
    note = f"Provide a value matching the following JSON schema: {schema}. Encode non-string values as JSON."
    return f"{text}\n\n{note}" if text else note


def prompt(name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
    return mark("prompt", name_or_fn, name, options)


class ResourceContent(BaseModel):
    """One content of a resource: text, bytes, or data that become JSON."""

    content: str | bytes
    mime_type: str | None = None
    meta: dict[str, Any] | None = None

    def __init__(self, content: Any, mime_type: str | None = None, meta: dict[str, Any] | None = None) -> None:
        default = "text/plain"
        if isinstance(content, bytes):
            default = "application/octet-stream"
        elif not isinstance(content, str):
            content, default = pydantic_core.to_json(content, fallback=str).decode(), "application/json"
        super().__init__(content=content, mime_type=mime_type or default, meta=meta)

    def to_mcp_resource_contents(self, uri: Any) -> Any:
        return resource_contents(str(uri), self.content, self.mime_type, self.meta)


class ResourceResult(BaseModel):
    contents: list[ResourceContent]
    meta: dict[str, Any] | None = None

    def __init__(self, contents: Any, meta: dict[str, Any] | None = None) -> None:
        if isinstance(contents, (str, bytes)):
            contents = [ResourceContent(contents)]
        check_items("contents", contents, ResourceContent, "str, bytes, or")
        super().__init__(contents=contents, meta=meta)

    def to_mcp_result(self, uri: Any) -> features.ReadResourceResult:
        contents = [content.to_mcp_resource_contents(uri) for content in self.contents]
        return features.ReadResourceResult(contents=contents, meta=self.meta)


def _result(value: Any, mime_type: str | None, meta: dict[str, Any] | None) -> ResourceResult:
    if isinstance(value, ResourceResult):
        return value

    meta = public_meta(meta)
    if isinstance(value, (str, bytes)):
        return ResourceResult([ResourceContent(value, mime_type, meta)])
    # The `_meta` of a single content takes precedence over the `_meta` of the resource.
    if isinstance(value, list) and value and isinstance(value[0], ResourceContent):
        result = ResourceResult(value)
        if meta is not None:
            result.contents = [
                content.model_copy(update={"meta": {**meta, **(content.meta or {})}}) for content in result.contents
            ]
        return result
    if value is None or isinstance(value, (dict, list, tuple, int, float, bool)):
        return ResourceResult([ResourceContent(json.dumps(value), mime_type or "application/json", meta)])
    return ResourceResult(value)


def _members(function: Function, options: Mapping[str, Any]) -> dict[str, Any]:
    # Returns the options of a decorator as members. Without a description, the docstring is used.
    members = {"description": function.doc, **given(options)}
    if isinstance(members.get("annotations"), dict):
        members["annotations"] = Annotations(**members["annotations"])
    return {"fn": function.fn, "name": function.component_name, **members}


# -- resources -------------------------------------------------------------------------------


class Resource(Component):
    """A resource. Subclasses implement `read`."""

    KEY_PREFIX: ClassVar[str] = "resource"

    uri: Uri
    name: str = ""
    mime_type: MimeType = "text/plain"
    annotations: Annotations | None = None

    @model_validator(mode="after")
    def _name_or_uri(self) -> Self:
        self.name = self.name or str(self.uri)
        return self

    @property
    def identity(self) -> str:
        return str(self.uri)

    @staticmethod
    def failure(text: str, error: Exception) -> Exception:
        return ResourceError(text)

    @classmethod
    def from_function(cls, fn: Any, uri: Any, *, name: str | None = None, **options: Any) -> FunctionResource:
        function = Function(fn, "resources", name=name)
        if function.arguments:
            raise ValueError(
                f"Resource {uri!r} has no URI template variables, but its function has parameters; "
                "add them to the URI as {name}, or remove them"
            )

        made = FunctionResource(uri=uri, **_members(function, options))
        made._function = function
        return made

    async def read(self) -> Any:
        raise NotImplementedError("Subclasses must implement read()")

    async def result(self) -> ResourceResult:
        return _result(await self.read(), self.mime_type, self.meta)

    def to_mcp_resource(self, **changed: Any) -> ListedResource:
        members = {"uri": str(self.uri), "mimeType": self.mime_type, "annotations": self.annotations}
        return self._listed(ListedResource, changed, **members)


class FunctionResource(Resource):
    fn: Callable[..., Any] = Field(exclude=True)

    async def read(self) -> Any:
        contents = await self._function.call({})
        return await contents.read() if isinstance(contents, Resource) else contents


TextResource, BinaryResource, HttpResource, DirectoryResource, _ = resource_classes(Resource, __name__)


class FileResource(HoldsFile, Resource):
    """A file. `is_binary` is decided by the MIME type unless it is given."""

    encoding: str | None = "utf-8"

    def _reads_bytes(self) -> bool:
        return self.is_binary if "is_binary" in self.model_fields_set else super()._reads_bytes()


def resource(uri: str, **options: Any) -> Any:
    """Mark a function as a resource for `mcp.add_resource`: `@resource("uri")`."""
    if callable(uri):
        raise TypeError("The @resource decorator requires a URI. Use @resource('uri') instead of @resource")
    return mark("resource", None, None, {"uri": uri, **options})


# -- templates: `{name}`, `{name*}` for several segments, and `{?name}` ------------------------

_QUERY = re.compile(r"\{\?([^}]+)\}")


def _encoded(text: str) -> str:
    # Returns a text with the characters percent-encoded that a URI may write in two ways.
    return quote(text, safe=":/?#[]@!$&'()*+,;=%", errors="replace")


class ResourceTemplate(Component):
    """A template of resources. Subclasses implement `read`, or `create_resource`."""

    KEY_PREFIX: ClassVar[str] = "template"

    uri_template: str
    mime_type: MimeType = "text/plain"
    parameters: dict[str, Any] = {}
    annotations: Annotations | None = None
    security: Any = Field(default=None, exclude=True)

    _lists: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def identity(self) -> str:
        return self.uri_template

    @staticmethod
    def from_function(
        fn: Any, uri_template: str, *, name: str | None = None, **options: Any
    ) -> FunctionResourceTemplate:
        """Return a function as a template. Raises ValueError if its parameters do not match the template."""
        function = Function(fn, "resource templates", name=name, takes_keywords=True)
        parameters = pruned(function.adapter.json_schema())
        made = FunctionResourceTemplate(uri_template=uri_template, parameters=parameters, **_members(function, options))
        made._check(function)
        made._function = function
        hints = {name: function.hints.get(name) for name in function.arguments}
        made._lists = frozenset(name for name, hint in hints.items() if list in (hint, get_origin(hint)))
        return made

    @cached_property
    def _path(self) -> tuple[list[str], list[str], set[int]]:
        # The fixed texts of the path, the variables between them, and the indexes of those that may contain "/".
        parts = re.split(r"\{([^}]+)\}", _QUERY.sub("", self.uri_template))
        names = parts[1::2]
        wide = {index for index, name in enumerate(names) if name.endswith("*")}
        return [_encoded(text) for text in parts[::2]], [_identifier(name.removesuffix("*")) for name in names], wide

    @cached_property
    def _query(self) -> dict[str, str]:
        # The variables of the query, and their names as parameters.
        query = _QUERY.search(self.uri_template)
        names = [name.strip().removesuffix("*") for name in query[1].split(",")] if query else ()
        return {name: _identifier(name) for name in names}

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the variables in a URI, None if it does not match."""
        if "#" not in self.uri_template:
            uri = uri.partition("#")[0]
        path, _, query = uri.partition("?")
        fixed, names, wide = self._path
        values: list[str] | None
        if not names:
            values = [] if _encoded(path) == fixed[0] else None
        else:
            # The library's regular expression takes n³ steps for three variables in a segment of n characters.
            values = values_across(fixed, _encoded(path), wide)
        if values is None:
            return None

        variables: dict[str, Any] = dict(zip(names, map(unquote, values), strict=True))
        # Parameters of a query may come in any order, and be left out.
        sent = parse_qs(query, keep_blank_values=True)
        for name, parameter in self._query.items():
            if name in sent and parameter not in variables:
                first, *more = sent[name]
                if parameter in self._lists:
                    variables[parameter] = [first, *more] if more else first.split(",") if first else []
                else:
                    variables[parameter] = first
        return variables

    def _check(self, function: Function) -> None:
        path, query = set(self._path[1]), set(self._query.values())
        if not path | query:
            raise ValueError("URI template must contain at least one parameter")

        known = {
            name: parameter
            for name, parameter in function.arguments.items()
            if parameter.kind is not parameter.VAR_KEYWORD
        }
        required = {name for name, parameter in known.items() if parameter.default is parameter.empty}
        if wrong := query - (known.keys() - required):
            raise ValueError(f"Query parameters {wrong} must be optional function parameters with default values")
        if not required <= path:
            raise ValueError(
                f"Required function arguments {required} must be a subset of the URI path parameters {path}"
            )
        if known == function.arguments and not path | query <= known.keys():
            raise ValueError(f"URI parameters {path | query} must be a subset of the function arguments: {set(known)}")

    async def read(self, arguments: dict[str, Any]) -> Any:
        raise NotImplementedError("Subclasses must implement read() or override create_resource()")

    async def create_resource(self, uri: str, params: dict[str, Any]) -> Resource:
        async def read() -> Any:
            return await self.read(params)

        members: dict[str, Any] = {"description": self.description, "mime_type": self.mime_type, "tags": self.tags}
        return Resource.from_function(read, uri, name=self.name, **members)

    async def result(self, uri: str, variables: dict[str, Any]) -> ResourceResult:
        if type(self).read is ResourceTemplate.read:
            contents = await (await self.create_resource(uri, variables)).read()
        else:
            contents = await self.read(variables)
        return _result(contents, self.mime_type, self.meta)

    def to_mcp_template(self, **changed: Any) -> features.ResourceTemplate:
        members = {"uriTemplate": self.uri_template, "mimeType": self.mime_type, "annotations": self.annotations}
        return self._listed(features.ResourceTemplate, changed, **members)


class FunctionResourceTemplate(ResourceTemplate):
    fn: Callable[..., Any] = Field(exclude=True)

    async def read(self, arguments: dict[str, Any]) -> Any:
        """Call the function. Raises ValueError for a variable that does not match its annotation."""
        values = {name: self._parsed(name, value) for name, value in arguments.items()}
        return await self._function.call(self._function.validated(values, by_name=True))

    def _parsed(self, name: str, value: Any) -> Any:
        parameter = self._function.arguments.get(name)
        hint = None if parameter is None else parameter.annotation
        # pydantic parses values whose annotations are strings, as all are with `from __future__ import annotations`.
        if not isinstance(value, str) or hint not in (int, float, bool):
            return value
        if hint is not bool:
            return hint(value)
        if value.lower() in ("true", "1", "yes"):
            return True
        if value.lower() in ("false", "0", "no"):
            return False
        raise ValueError(f"Invalid boolean value for {name}: {value!r}")


def _identifier(name: str) -> str:
    return name.replace("-", "_")
