"""Holds messages against the official JSON Schema of their protocol version.

    validate("2025-06-18", "server", message, method="tools/list")

First the envelope, as that version's schema names it; then the definition for the request's or
notification's method, for the result of the answered method, or for the error's code. The official
schemas are open: they let any unknown member pass. Here they are closed by default, so a member that
is newer than the version, or ours alone, is a violation too; only what the specification leaves open
(`_meta`, schemas of tools, capabilities of extensions) stays open.

2024-10-07 never had a schema: it is 2024-11-05's less what came later (protocol-versions.md, section 4).

`Conversation` follows both directions of one connection and finds versions and methods by itself.

The schemas are in ../shared/spec; tests ask for the fixture `shared`, which skips where it is missing.
"""

from __future__ import annotations

import base64
import binascii
import copy
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jsonschema_rs

__all__ = [
    "AVAILABLE",
    "VERSIONS",
    "Conversation",
    "SchemaViolation",
    "UnknownMethod",
    "validate",
    "validate_definition",
]

Direction = Literal["client", "server"]

VERSIONS = ("2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
OLDEST, FIRST_WITH_SCHEMA, NEWEST = VERSIONS[0], VERSIONS[1], VERSIONS[-1]
LEGACY = VERSIONS[:-1]
NEWEST_LEGACY = LEGACY[-1]

FOREIGN = (
    "com.example/", "skills/", "resources/directory/", "events/", "notifications/events/", "notifications/claude/",
)  # fmt: skip
"""How methods of extensions begin, of which the protocol's schemas know nothing."""

EVENT_CODES = frozenset((*range(-32027, -32022), *range(-32015, -32010)))
"""The codes of the events extension, those of SEP-3415 and those of the sketch before it."""

SPEC = Path(__file__).resolve().parents[3] / "shared" / "spec"
AVAILABLE = SPEC.is_dir()

ENVELOPE_VERSION = "io.modelcontextprotocol/protocolVersion"


class SchemaViolation(AssertionError):
    """The message is not what its protocol version's schema allows."""


class UnknownMethod(SchemaViolation):
    """This side sends no such request or notification in this version."""


def validate(
    version: str, direction: Direction, message: Any, method: str | None = None, *, closed: bool = True
) -> str:
    """Raise SchemaViolation unless `message` may be sent so; give the name of the definition it met.

    `direction` is who sent it, `method` the method that a response answers. A JSON-RPC error needs no
    method. `closed=False` is the official schema as published: unknown members pass.
    """
    schema = _schema(version)
    kind = _envelope(schema, message)
    if kind == "error":
        return _validate_error(schema, message, closed)
    if kind == "result":
        if method is None:
            raise ValueError("say which method this result answers")
        return _validate_result(schema, direction, message["result"], method, closed)
    name = (schema.requests if kind == "request" else schema.notifications)[direction].get(message["method"])
    if name is None:
        raise UnknownMethod(f"{version}: a {direction} sends no {kind} {message['method']!r}")
    # The older schemas describe only method and params here, and leave the envelope to its own definition.
    described = schema.definitions[name]["properties"]
    schema.check(name, {key: value for key, value in message.items() if key in described}, closed)
    return name


def validate_definition(version: str, name: str, value: Any, *, closed: bool = True) -> None:
    """Raise SchemaViolation unless `value` is what the version's schema calls `name`."""
    _schema(version).check(name, value, closed)


# --------------------------------------------------------------------------------- one message

_MEMBERS = {
    "request": {"jsonrpc", "id", "method", "params"},
    "notification": {"jsonrpc", "method", "params"},
    "result": {"jsonrpc", "id", "result"},
    "error": {"jsonrpc", "id", "error"},
}


def _envelope(schema: _Schema, message: Any) -> str:
    """Tell a request from a notification, a result and an error, and check what all of a kind share."""
    where = f"{schema.version} envelope"
    if not isinstance(message, dict):
        raise SchemaViolation(f"{where}: not an object: {message!r}")
    if "method" in message:
        kind = "request" if "id" in message else "notification"
    elif ("result" in message) != ("error" in message):
        kind = "result" if "result" in message else "error"
    else:
        raise SchemaViolation(f"{where}: neither request, notification nor response: {_short(message)}")
    if unknown := message.keys() - _MEMBERS[kind]:
        raise SchemaViolation(f"{where}: a {kind} has no member {sorted(unknown)}")
    request_id = message.get("id")
    # JSON Schema counts 1.0 and, in Python, nothing else among the integers; we never send it.
    if isinstance(request_id, float | bool):
        raise SchemaViolation(f"{where}: the id {request_id!r} is neither a string nor an integer")
    if kind == "error" and schema.version in _NULL_ID and request_id is None and "id" in message:
        # An id that could not be read. These versions want one in every error, and JSON-RPC says null.
        message = {**message, "id": 0}
    schema.check(schema.envelopes[kind], message, closed=False)
    return kind


_NULL_ID = VERSIONS[:4]


def _validate_result(schema: _Schema, direction: Direction, result: Any, method: str, closed: bool) -> str:
    asker: Direction = "client" if direction == "server" else "server"
    request = schema.requests[asker].get(method)
    if request is None:
        raise UnknownMethod(f"{schema.version}: a {asker} sends no request {method!r}, so nobody answers one")
    name = schema.result_of(request)
    if schema.version == NEWEST:
        result_type = result.get("resultType")
        if result_type == "input_required" and method in ("tools/call", "prompts/get", "resources/read"):
            name = "InputRequiredResult"
            if not result.keys() & {"inputRequests", "requestState"}:
                raise SchemaViolation(f"{schema.version} {name}: neither inputRequests nor requestState (S26-088)")
        elif result_type == "task" and method == "tools/call":
            name = "CreateTaskResult"
        elif result_type == "upload_required" and method == "tools/call":
            return "upload_required"  # a draft without a schema; `tests/server/extensions/test_files.py` checks it
        elif result_type != "complete":
            raise SchemaViolation(f"{schema.version} {name}: resultType {result_type!r} for {method} (S26-006)")
    elif isinstance(result.get("task"), dict) and "CreateTaskResult" in schema.definitions:
        name = "CreateTaskResult"
    schema.check(name, result, closed)
    return name


def _validate_error(schema: _Schema, message: dict[str, Any], closed: bool) -> str:
    code = message["error"]["code"]
    name = schema.errors.get(code)
    if schema.version == NEWEST and name is None and -32099 <= code <= -32000:
        raise SchemaViolation(f"{schema.version}: the code {code} means nothing there (S26-010, S26-012)")
    if code == -32042 and name is None:
        raise SchemaViolation(f"{schema.version}: the code {code} belongs to 2025-11-25 alone")
    if name is None:
        return schema.envelopes["error"]
    whole = "error" in schema.definitions[name]["properties"]
    schema.check(name, message if whole else message["error"], closed)
    return name


# --------------------------------------------------------------------------------- one version


class _Schema:
    """A version's definitions as published and closed, with the tables that say which one when."""

    def __init__(self, version: str) -> None:
        self.version = version
        source = FIRST_WITH_SCHEMA if version == OLDEST else version
        text = (SPEC / f"mcp-{source}" / "schema.json").read_text(encoding="utf-8")
        document = json.loads(text)
        self.dialect = document["$schema"]
        self.container = "$defs" if "$defs" in document else "definitions"
        self.definitions: dict[str, Any] = document[self.container]
        _repair(self.definitions)
        if version == OLDEST:
            _make_oldest(self.definitions)
        if version == NEWEST:
            _add_tasks(self.definitions)
        self.closed_definitions = _close_all(version, self.definitions)
        old = "JSONRPCError" in self.definitions
        self.envelopes = {
            "request": "JSONRPCRequest",
            "notification": "JSONRPCNotification",
            "result": "JSONRPCResponse" if old else "JSONRPCResultResponse",
            "error": "JSONRPCError" if old else "JSONRPCErrorResponse",
        }
        self.requests = {"client": self._methods("ClientRequest"), "server": self._methods("ServerRequest")}
        self.notifications = {
            "client": self._methods("ClientNotification"),
            "server": self._methods("ServerNotification"),
        }
        if version == NEWEST:
            self.requests["client"] |= {f"tasks/{name}": f"{name.title()}TaskRequest" for name in _TASK_METHODS}
            self.notifications["server"]["notifications/tasks"] = "TaskNotification"
        self.errors = dict(self._error_codes())
        self._validators: dict[tuple[str, bool], jsonschema_rs.Validator] = {}

    def _methods(self, union: str) -> dict[str, str]:
        definition = self.definitions.get(union)
        if definition is None:
            return {}
        if "anyOf" not in definition:  # a union of one is written out
            return {definition["properties"]["method"]["const"]: union}
        names = [branch["$ref"].rpartition("/")[2] for branch in definition["anyOf"]]
        return {self.definitions[name]["properties"]["method"]["const"]: name for name in names}

    def _error_codes(self) -> Iterator[tuple[int, str]]:
        for name in self.definitions:
            if name.endswith("Error") and name not in ("Error", "JSONRPCError"):
                properties = _flat(self.definitions[name], self.definitions)["properties"]
                if "error" in properties:
                    properties = _flat(properties["error"], self.definitions)["properties"]
                yield properties["code"]["const"], name

    def result_of(self, request: str) -> str:
        """`ListToolsRequest` is answered by a `ListToolsResult`, what has no result of its own by an empty one."""
        name = request.removesuffix("Request") + "Result"
        return name if name in self.definitions else "EmptyResult"

    def check(self, name: str, value: Any, closed: bool) -> None:
        validator = self._validators.get((name, closed))
        if validator is None:
            definitions = self.closed_definitions if closed else self.definitions
            if name not in definitions:
                raise KeyError(f"{self.version} has no definition {name}")
            document = {"$schema": self.dialect, "$ref": f"#/{self.container}/{name}", self.container: definitions}
            validator = jsonschema_rs.validator_for(document, validate_formats=True, formats={"byte": _is_base64})
            self._validators[name, closed] = validator
        problems = [line for error in validator.iter_errors(value) for line in _explain(error)]
        if problems:
            raise SchemaViolation(f"{self.version} {name}: " + "; ".join(problems) + f" in {_short(value)}")


@functools.cache
def _schema(version: str) -> _Schema:
    if version not in VERSIONS:
        raise ValueError(f"no protocol version {version!r}; there are {', '.join(VERSIONS)}")
    return _Schema(version)


def _repair(definitions: dict[str, Any]) -> None:
    """Undo what the generator of the official schemas got wrong: TypeScript's `number` is no integer there."""
    if "JSONValue" in definitions:
        definitions["JSONValue"]["anyOf"][-1]["type"] = ["string", "number", "boolean", "null"]
    if "ElicitResult" in definitions:
        values = definitions["ElicitResult"]["properties"]["content"]["additionalProperties"]
        for branch in values.get("anyOf", [values]):
            if "integer" in branch["type"]:
                branch["type"] = ["string", "number", "boolean"]


_TASK_METHODS = ("get", "update", "cancel")


def _add_tasks(definitions: dict[str, Any]) -> None:
    """Describe the tasks extension, which has no schema among the published ones (tasks-extension)."""
    text, count = {"type": "string"}, {"type": "integer", "minimum": 1}
    time = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}
    task: dict[str, Any] = {
        "taskId": {"type": "string", "minLength": 16},
        "status": text,
        "statusMessage": text,
        "createdAt": time,
        "lastUpdatedAt": time,
        "ttlMs": {"type": ["integer", "null"]},
        "pollIntervalMs": count,
    }
    required = ["taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"]
    meta = {"_meta": {"type": "object"}}
    of_status: dict[str, dict[str, Any]] = {
        "working": {},
        "input_required": {"inputRequests": {"type": "object", "minProperties": 1}},
        "completed": {"result": {"$ref": "#/$defs/CallToolResult"}},
        "failed": {"error": {"$ref": "#/$defs/Error"}},
        "cancelled": {},
    }

    def detailed(more: dict[str, Any]) -> dict[str, Any]:
        return {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {**task, **meta, **more, **own, "status": {"const": status}},
                    "required": [*required, *more, *own],
                    "additionalProperties": False,
                }
                for status, own in of_status.items()
            ]
        }

    definitions["CreateTaskResult"] = {
        "type": "object",
        "properties": {**task, **meta, "resultType": {"const": "task"}, "status": {"const": "working"}},
        "required": [*required, "resultType"],
        "additionalProperties": False,
    }
    definitions["GetTaskResult"] = detailed({"resultType": {"const": "complete"}})
    for name in ("UpdateTaskResult", "CancelTaskResult"):
        definitions[name] = {
            "type": "object",
            "properties": {**meta, "resultType": {"const": "complete"}},
            "required": ["resultType"],
            "additionalProperties": False,
        }
    definitions["TaskNotification"] = {
        "type": "object",
        "properties": {"method": {"const": "notifications/tasks"}, "params": detailed({})},
        "required": ["method", "params"],
    }
    ids = {"type": "array", "items": text}
    definitions["SubscriptionFilter"]["properties"]["taskIds"] = ids


def _make_oldest(definitions: dict[str, Any]) -> None:
    """Turn 2024-11-05 into 2024-10-07, of which only the official SDKs' history tells."""
    gone = {"CancelledNotification", "RootsListChangedNotification", "ListRootsRequest", "ListRootsResult"}
    for union in ("ClientRequest", "ServerRequest", "ClientNotification", "ServerNotification", "ClientResult"):
        branches = definitions[union]["anyOf"]
        branches[:] = [branch for branch in branches if branch["$ref"].rpartition("/")[2] not in gone]
    for name in gone:
        del definitions[name]

    def properties(name: str, *path: str) -> dict[str, Any]:
        node = definitions[name]["properties"]
        for step in path:
            node = node[step]["properties"]
        return node

    for name in ("TextContent", "ImageContent", "EmbeddedResource", "Resource", "ResourceTemplate"):
        del properties(name)["annotations"]
    del properties("Resource")["size"]
    del properties("InitializeResult")["instructions"]
    del properties("ClientCapabilities")["roots"]
    del properties("CreateMessageRequest", "params")["modelPreferences"]
    definitions["LoggingLevel"]["enum"] = ["debug", "info", "warning", "error"]
    # The published name was a number before it was a date.
    properties("InitializeRequest", "params")["protocolVersion"] = {"type": ["string", "integer"]}
    properties("CreateMessageResult")["stopReason"] = {"enum": ["endTurn", "stopSequence", "maxTokens"]}
    definitions["CreateMessageResult"]["required"].append("stopReason")
    # A tool's result is `toolResult`, any value; `content` and `isError` beside it do no harm.
    properties("CallToolResult")["toolResult"] = {}
    definitions["CallToolResult"]["required"] = ["toolResult"]
    for content in (properties("CallToolResult")["content"]["items"], properties("PromptMessage")["content"]):
        content["anyOf"] = [branch for branch in content["anyOf"] if not branch["$ref"].endswith("/EmbeddedResource")]


# ------------------------------------------------------------------------------------- closing

# What the specification itself leaves open, wherever it stands.
_OPEN_MEMBERS = {"_meta", "inputSchema", "outputSchema"}


# What MCP Apps says where a version has no `_meta` of its own.
_APPS_META = {
    "type": "object",
    "properties": {"ui": {"type": "object"}, "ui/resourceUri": {"type": "string"}},
    "additionalProperties": False,
    "minProperties": 1,
}


def _close_all(version: str, definitions: dict[str, Any]) -> dict[str, Any]:
    closed = {}
    for name, definition in definitions.items():
        if name.endswith("MetaObject"):
            closed[name] = definition
        else:
            closed[name] = _close(_flat(definition, definitions), definitions)
    # `Result` is the open root of all results; a result that says it is empty has nothing else in it.
    empty = copy.deepcopy(definitions["Result"])
    empty["additionalProperties"] = False
    closed["EmptyResult"] = empty
    if version in LEGACY:
        # Not in these schemas, but MCP Apps is negotiated there: capabilities are an open set.
        for name in ("ClientCapabilities", "ServerCapabilities"):
            closed[name]["properties"]["extensions"] = {"type": "object", "additionalProperties": {"type": "object"}}
        for name in ("Tool", "Resource", "ResourceTemplate", "TextResourceContents", "BlobResourceContents"):
            closed[name]["properties"].setdefault("_meta", _APPS_META)
    # Clients in the field read this member of the events extension (EVT-003), which no version has.
    closed["ServerCapabilities"]["properties"]["events"] = {"type": "object"}
    if "SubscriptionFilter" in closed:
        closed["SubscriptionFilter"]["properties"]["eventsListChanged"] = {"type": "boolean"}
    return closed


def _close(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_close(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    node = _flat(node, definitions)
    closed = {}
    for key, value in node.items():
        if key == "properties":
            closed[key] = {
                name: child if name in _OPEN_MEMBERS else _close(child, definitions) for name, child in value.items()
            }
        elif key in ("items", "anyOf", "additionalProperties"):
            closed[key] = _close(value, definitions)
        else:
            closed[key] = value
    if node.get("properties") and "additionalProperties" not in node:
        closed["additionalProperties"] = False
    return closed


def _flat(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The same schema without `allOf`: one object with the members of all branches."""
    if "allOf" not in node:
        return node
    flat: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    for branch in node["allOf"]:
        if "$ref" in branch:
            branch = definitions[branch["$ref"].rpartition("/")[2]]
        branch = _flat(branch, definitions)
        for name, child in branch.get("properties", {}).items():
            flat["properties"][name] = {**flat["properties"].get(name, {}), **child}
        flat["required"] += [name for name in branch.get("required", []) if name not in flat["required"]]
    return flat


# -------------------------------------------------------------------------------------- errors


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _explain(error: Any) -> Iterator[str]:
    """What is wrong and where; of a union, what is wrong with the branch that came nearest."""
    branches = getattr(error.kind, "context", None)
    if branches:
        # A block of another type is further away than one of this type with a wrong member.
        nearest = min(branches, key=lambda branch: (any(e.kind.name == "const" for e in branch), len(branch)))
        for inner in nearest:
            yield from _explain(inner)
    else:
        yield f"{error.message} at /{'/'.join(map(str, error.instance_path))}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 400 else text[:400] + "…"


# -------------------------------------------------------------------------------- conversations


class Conversation:
    """Both directions of one connection, and what the server may send next.

    Give it every message in the order in which it passed, client's and server's: it knows which method
    an id asked for and which version is spoken, validates all that the server sends, and refuses an
    answer to what was not asked, a second answer, and progress for a token that no open request named.
    Where the schemas are missing it does only the latter.
    """

    def __init__(self) -> None:
        self.version: str | None = None
        self.seen: list[str] = []  # the definitions that the server's messages met
        self._open: dict[tuple[type, Any], list[tuple[str, str, Any]]] = {}
        self._tokens: set[tuple[type, Any]] = set()

    def client(self, message: Any) -> None:
        """The client sent this; it may be anything."""
        for one in message if isinstance(message, list) else [message]:
            # An id without a method is a broken request, and is refused under that id.
            is_call = isinstance(one, dict) and ("method" in one or not one.keys() & {"result", "error"})
            if is_call and type(one.get("id")) in (int, str):
                self._asked(one)

    def _asked(self, request: dict[str, Any]) -> None:
        params = request.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        meta = meta if isinstance(meta, dict) else {}
        version = self.version or NEWEST_LEGACY
        if ENVELOPE_VERSION in meta:
            version = NEWEST
            if request.get("method") != "server/discover":  # a client may probe and then initialize
                self.version = self.version or NEWEST
        token = meta.get("progressToken")
        if type(token) not in (int, str):
            token = None
        else:
            self._tokens.add((type(token), token))
        method = request.get("method")
        asked = (method if isinstance(method, str) else "", version, token)
        self._open.setdefault((type(request["id"]), request["id"]), []).append(asked)

    def server(self, message: Any) -> None:
        """The server sent this; raises SchemaViolation if it should not have."""
        for one in message if isinstance(message, list) else [message]:
            if not isinstance(one, dict):
                raise SchemaViolation(f"not an object: {one!r}")
            if "method" in one:
                self._told(one)
            else:
                self._answered(one)

    def _told(self, message: dict[str, Any]) -> None:
        if message["method"] == "notifications/progress":
            token = message.get("params", {}).get("progressToken")
            if (type(token), token) not in self._tokens:
                raise SchemaViolation(f"progress for the token {token!r}, which no open request named")
        if message["method"].startswith(FOREIGN):
            return
        self._check(self.version or NEWEST_LEGACY, message, None)

    def _answered(self, message: dict[str, Any]) -> None:
        request_id = message.get("id")
        if request_id is None:
            # An id that could not be read: null up to 2025-06-18, left out since.
            version = self.version or (FIRST_WITH_SCHEMA if "id" in message else NEWEST_LEGACY)
            self._check(version, message, None)
            return
        key = (type(request_id), request_id)
        asked = self._open.get(key)
        if not asked:
            raise SchemaViolation(f"an answer to {request_id!r}, which is not open: {_short(message)}")
        # Of two under one id the later is refused, and at once.
        is_refused = message.get("error", {}).get("code") == -32600
        method, version, token = asked.pop() if is_refused else asked.pop(0)
        if not asked:
            del self._open[key]
        if not isinstance(message.get("result"), dict) or "task" not in message["result"]:
            self._tokens.discard((type(token), token))  # a task of 2025-11-25 keeps it
        if method.startswith(FOREIGN) and ("result" in message or message["error"]["code"] in EVENT_CODES):
            return
        if method == "initialize" and "result" in message:
            version = self.version = message["result"].get("protocolVersion", NEWEST_LEGACY)
        self._check(version, message, method)

    def _check(self, version: str, message: dict[str, Any], method: str | None) -> None:
        if AVAILABLE:
            self.seen.append(validate(version, "server", message, method))

    @property
    def unanswered(self) -> list[Any]:
        """The ids of requests that have no answer yet."""
        return [request_id for (_, request_id), asked in self._open.items() for _ in asked]
