"""Tools, prompts and resources of version 1 of the official SDK, which are author's functions, and their managers."""

from __future__ import annotations

import functools
import inspect
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, ClassVar, Self

import pydantic_core
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, TypeAdapter, ValidationInfo, field_validator, validate_call

from mcpd.compat.contents import as_block, resource_classes
from mcpd.compat.errors import ResourceNotFoundError, ToolError, UrlElicitationRequiredError
from mcpd.compat.install import serves_in_threads
from mcpd.compat.types import features
from mcpd.compat.types.features import Annotations, ContentBlock, Icon, Role, TextContent, Uri
from mcpd.protocol.printable import printable
from mcpd.server.functions.annotations import is_coroutine_function
from mcpd.transports.routes import values_between
from .functions import FuncMetadata, call, context_parameter, function_name

log = logging.getLogger("mcpd")


class Component:
    """A function as a tool, prompt or template, and what clients see of it. Members are passed by keyword."""

    fn: Callable[..., Any]
    name: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    annotations: Any = None
    meta: dict[str, Any] | None = None
    context_kwarg: str | None = None

    def __init__(self, **members: Any) -> None:
        vars(self).update(members)

    @classmethod
    def _of_function(
        cls,
        fn: Callable[..., Any],
        name: str | None,
        description: str | None = None,
        context_kwarg: str | None = None,
        **members: Any,
    ) -> Self:
        return cls(
            fn=fn,
            name=function_name(fn, name),
            description=description or fn.__doc__ or "",
            context_kwarg=context_kwarg or context_parameter(fn),
            **members,
        )

    @property
    def _skipped(self) -> list[str]:
        # The parameters that clients do not see.
        return [self.context_kwarg] if self.context_kwarg else []

    @property
    def _runs_in_thread(self) -> bool:
        return serves_in_threads()

    async def _call(self, values: dict[str, Any], context: Any) -> Any:
        if self.context_kwarg and context is not None:
            values = {**values, self.context_kwarg: context}
        return await call(functools.partial(self.fn, **values), in_thread=self._runs_in_thread)


class Manager:
    """The components of a server by name or URI. The first one of a name stays."""

    kind: ClassVar[str]
    unknown_error: ClassVar[type[Exception]] = ValueError

    def __init__(self, warn_on_duplicate: bool = True) -> None:
        self._warns = warn_on_duplicate
        self._items: dict[str, Any] = {}

    def _add(self, key: str, item: Any) -> Any:
        # Add a component. Returns the component that has its key.
        if key in self._items and self._warns:
            log.warning("%s already exists: %s", self.kind.title(), printable(key))
        # The library keeps the first one and only warns, and servers register tools twice by accident.
        return self._items.setdefault(key, item)

    def _get(self, key: str) -> Any:
        return self._items.get(key)

    def _known(self, key: str) -> Any:
        if key not in self._items:
            raise self.unknown_error(f"Unknown {self.kind}: {key}")
        return self._items[key]

    def _remove(self, key: str) -> None:
        self._known(key)
        del self._items[key]

    def _list(self) -> list[Any]:
        return list(self._items.values())


# -- tools -----------------------------------------------------------------------------------


class Tool(Component):
    fn_metadata: FuncMetadata
    is_async: bool = False

    @cached_property
    def parameters(self) -> dict[str, Any]:
        return self.fn_metadata.arg_model.model_json_schema(by_alias=True)

    @cached_property
    def output_schema(self) -> dict[str, Any] | None:
        return self.fn_metadata.output_schema

    @classmethod
    def from_function(
        cls, fn: Callable[..., Any], name: str | None = None, *, structured_output: bool | None = None, **members: Any
    ) -> Self:
        """Return a function as a tool. Raises InvalidSignature, and ValueError for a lambda without a name."""
        made = cls._of_function(fn, name, is_async=is_coroutine_function(fn), **members)
        made._set_metadata(structured_output)
        return made

    def _set_metadata(self, structured_output: bool | None) -> None:
        self.fn_metadata = FuncMetadata(self.fn, self._skipped, structured_output)

    async def run(self, arguments: dict[str, Any], context: Any = None, convert_result: bool = False) -> Any:
        """Call the function. Raises ToolError with a message for the model."""
        try:
            result = await self._call(self.fn_metadata.validated(arguments), context)
            return self.fn_metadata.convert_result(result) if convert_result else result
        except UrlElicitationRequiredError:
            raise
        except Exception as error:
            raise ToolError(f"Error executing tool {self.name}: {error}") from error


class ToolManager(Manager):
    kind = "tool"
    unknown_error = ToolError
    tool_type: ClassVar[type[Tool]] = Tool

    def __init__(self, warn_on_duplicate_tools: bool = True, *, tools: Iterable[Tool] | None = None) -> None:
        super().__init__(warn_on_duplicate_tools)
        # Servers of other people read and change this dict.
        self._tools: dict[str, Tool] = self._items
        for tool in tools or ():
            self._add(tool.name, tool)

    get_tool = Manager._get
    remove_tool = Manager._remove
    list_tools = Manager._list

    def add_tool(self, fn: Callable[..., Any], name: str | None = None, **options: Any) -> Any:
        """Add a function. Returns the tool that has its name."""
        tool = self.tool_type.from_function(fn, name, **options)
        return self._add(tool.name, tool)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Any = None, convert_result: bool = False
    ) -> Any:
        return await self._known(name).run(arguments, context=context, convert_result=convert_result)


# -- prompts ---------------------------------------------------------------------------------


class Message(BaseModel):
    """A message. A string, an image or a sound becomes a block."""

    model_config = ConfigDict(defer_build=True)

    role: Role
    content: ContentBlock

    def __init__(self, content: Any, **members: Any) -> None:
        block = TextContent(text=content) if isinstance(content, str) else as_block(content)
        super().__init__(content=block, **members)


class UserMessage(Message):
    """A message of the user."""

    role: Role = "user"


class AssistantMessage(Message):
    """A message of the assistant."""

    role: Role = "assistant"


class PromptArgument(features.PromptArgument):
    """An argument of a prompt."""

    required: bool | None = False


class Prompt(Component):
    arguments: list[PromptArgument] | None = None

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **members: Any) -> Self:
        """Return a function as a prompt. Its parameters are the arguments."""
        made = cls._of_function(fn, name, **members)
        schema = FuncMetadata(fn, made._skipped).arg_model.model_json_schema()
        required = schema.get("required", ())
        made.arguments = [
            PromptArgument(name=key, description=member.get("description"), required=key in required)
            for key, member in schema.get("properties", {}).items()
        ]
        made.fn = validate_call(fn)
        return made

    async def render(self, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Return the messages. Raises ValueError for missing arguments and failures."""
        values = self._checked(arguments)
        try:
            return self._messages(await self._call(values, context))
        except Exception as error:
            raise ValueError(f"Error rendering prompt {self.name}: {error}") from error

    def _checked(self, arguments: dict[str, Any] | None) -> dict[str, Any]:
        values = dict(arguments or {})
        missing = {argument.name for argument in self.arguments or () if argument.required} - set(values)
        if missing:
            raise ValueError(f"Missing required arguments: {missing}")
        return values

    def _messages(self, result: Any) -> list[Message]:
        messages = []
        for item in result if isinstance(result, (list, tuple)) else [result]:
            try:
                messages.append(self._message(item))
            except Exception as error:
                raise ValueError(f"Could not convert prompt result to message: {item}") from error
        return messages

    def _message(self, item: Any) -> Message:
        if isinstance(item, Message):
            return item
        if isinstance(item, dict):
            message: Message = _dict_adapter().validate_python(item)
            return message
        text = item if isinstance(item, str) else pydantic_core.to_json(item, fallback=str, indent=2).decode()
        return UserMessage(content=TextContent(text=text))


@functools.cache
def _dict_adapter() -> TypeAdapter[Any]:
    return TypeAdapter(UserMessage | AssistantMessage)


class PromptManager(Manager):
    kind = "prompt"

    def __init__(self, warn_on_duplicate_prompts: bool = True) -> None:
        super().__init__(warn_on_duplicate_prompts)
        self._prompts: dict[str, Prompt] = self._items

    get_prompt = Manager._get
    remove_prompt = Manager._remove
    list_prompts = Manager._list

    def add_prompt(self, prompt: Prompt) -> Any:
        """Add a prompt. Returns the prompt that has its name."""
        return self._add(prompt.name, prompt)

    async def render_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Return the messages of a prompt. Raises ValueError for an unknown one."""
        return await self._known(name).render(arguments, context=context)


_MIME_TYPE = r"^[a-zA-Z0-9]+/[a-zA-Z0-9\-+.]+(;\s*[a-zA-Z0-9\-_.]+=[a-zA-Z0-9\-_.]+)*$"


class Resource(BaseModel, ABC):
    """A resource. Subclasses implement `read`."""

    model_config = ConfigDict(validate_default=True, defer_build=True)

    uri: Uri
    name: str | None = None
    title: str | None = None
    description: str | None = None
    mime_type: str = Field(default="text/plain", pattern=_MIME_TYPE)
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = None

    @field_validator("name", mode="before")
    @classmethod
    def _name_or_uri(cls, name: str | None, info: ValidationInfo) -> str:
        uri = info.data.get("uri")
        if not name and not uri:
            raise ValueError("Either name or uri must be provided")
        return name or str(uri)

    @staticmethod
    def failure(text: str, error: Exception) -> Exception:
        return ValueError(f"{text}: {error}")

    @abstractmethod
    async def read(self) -> str | bytes:
        """Return the contents."""


TextResource, BinaryResource, HttpResource, DirectoryResource, FileResource = resource_classes(Resource, __name__)


class FunctionResource(Resource):
    """A resource whose function returns text, bytes, or data that become JSON."""

    fn: Callable[[], Any] = Field(exclude=True)

    async def read(self) -> str | bytes:
        """Call the function. Raises ValueError with the message of an exception."""
        try:
            result = self.fn()
            if inspect.isawaitable(result):
                result = await result
            if isinstance(result, Resource):
                return await result.read()
            if isinstance(result, (str, bytes)):
                return result
            return pydantic_core.to_json(result, fallback=str, indent=2).decode()
        except Exception as error:
            raise self.failure(f"Error reading resource {self.uri}", error) from error

    @classmethod
    def from_function(
        cls,
        fn: Callable[..., Any],
        uri: str,
        name: str | None = None,
        *,
        description: str | None = None,
        mime_type: str | None = None,
        **members: Any,
    ) -> FunctionResource:
        return cls(
            uri=AnyUrl(uri),
            name=function_name(fn, name),
            description=description or fn.__doc__ or "",
            mime_type=mime_type or "text/plain",
            fn=validate_call(fn),
            **members,
        )


class ResourceTemplate(Component):
    """A function whose parameters are the variables of a URI."""

    uri_template: str
    mime_type: str = "text/plain"

    def __init__(self, **members: Any) -> None:
        super().__init__(**members)
        self._metadata = FuncMetadata(self.fn, self._skipped)
        self.fn = validate_call(self.fn)
        # Fixed texts and names take turns. The library's regular expression takes n³ steps for three variables in a
        # segment of n characters.
        pieces = re.split(r"\{(\w+)\}", self.uri_template)
        self._fixed, self._names = pieces[::2], pieces[1::2]

    @cached_property
    def parameters(self) -> dict[str, Any]:
        return self._metadata.arg_model.model_json_schema()

    @classmethod
    def from_function(cls, fn: Callable[..., Any], uri_template: str, name: str | None = None, **members: Any) -> Self:
        members["mime_type"] = members.get("mime_type") or "text/plain"
        return cls._of_function(fn, name, uri_template=uri_template, **members)

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the variables in a URI, None if it does not match."""
        # A function of the context alone is a template without variables.
        if not self._names:
            return {} if uri == self.uri_template else None

        values = values_between(self._fixed, uri)
        return None if values is None else dict(zip(self._names, values, strict=True))

    def _resource(self, uri: str, result: Any) -> FunctionResource:
        members: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("name", "title", "description", "mime_type", "icons", "annotations", "meta")
        }
        return FunctionResource(uri=uri, fn=lambda: result, **members)  # type: ignore[arg-type]  # pydantic parses it

    async def create_resource(self, uri: str, params: dict[str, Any], context: Any = None) -> Any:
        """Call the function and return the resource. Raises ValueError."""
        try:
            return self._resource(uri, await self._call(params, context))
        except Exception as error:
            text = "Error creating resource from template"
            # The library's manager puts the same words around the message again.
            raise ValueError(f"{text}: {text}: {error}") from error


class ResourceManager(Manager):
    kind = "resource"
    template_type: ClassVar[type[ResourceTemplate]] = ResourceTemplate

    def __init__(self, warn_on_duplicate_resources: bool = True) -> None:
        super().__init__(warn_on_duplicate_resources)
        # Servers of other people read and change these dicts.
        self._resources: dict[str, Resource] = self._items
        self._templates: dict[str, Any] = {}

    list_resources = Manager._list

    def add_resource(self, resource: Resource) -> Any:
        """Add a resource. Returns the resource that has its URI."""
        return self._add(str(resource.uri), resource)

    def add_template(self, fn: Callable[..., Any], uri_template: str, **options: Any) -> Any:
        template = self.template_type.from_function(fn, uri_template, **options)
        self._templates[template.uri_template] = template
        return template

    async def get_resource(self, uri: Any, context: Any = None) -> Any:
        """Return the resource of a URI, which may match a template. Raises ResourceNotFoundError, and ValueError."""
        key = str(uri)
        if key in self._resources:
            return self._resources[key]

        for template in self._templates.values():
            variables = template.matches(key)
            if variables is not None:
                return await template.create_resource(key, variables, context=context)
        raise ResourceNotFoundError(f"Unknown resource: {uri}")

    def list_templates(self) -> list[Any]:
        return list(self._templates.values())
