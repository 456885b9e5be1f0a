"""Operations of an OpenAPI document as tools: a server on the loopback sees the requests, a wire the results."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.http_peer import modern, serving
from support.raw_http import Asked, RawServer, as_json, raw_server, reply
from support.ui_stage import BOTH_ERAS
from support.wires import MODERN, Wire, memory_wire

from mcpd import Server
from mcpd.errors import ConfigurationError
from mcpd.server.reloading import take_over
from mcpd.sources.openapi.api import Api

PET = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "name": {"type": "string", "maxLength": 20},
        "secret": {"type": "string", "writeOnly": True},
        "parent": {"$ref": "#/components/schemas/Pet"},
        "nick": {"type": "string", "nullable": True},
    },
}
NAME = {"name": "petId", "in": "path", "required": True, "schema": {"type": "string"}}


def json_of(schema: Any) -> dict[str, Any]:
    return {"description": "ok", "content": {"application/json": {"schema": schema}}}


def document(version: str = "3.0.3", **more: Any) -> dict[str, Any]:
    pet = {"$ref": "#/components/schemas/Pet"}
    query = [
        {"name": "tag", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
        {"name": "ids", "in": "query", "explode": False, "schema": {"type": "array", "items": {"type": "integer"}}},
        {"name": "filter", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
        {"name": "page", "in": "query", "schema": {"type": "object"}},
        {"name": "bar", "in": "query", "style": "pipeDelimited", "explode": False, "schema": {"type": "array"}},
        {"name": "json", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
        {"name": "all", "in": "query", "schema": {"type": "boolean"}},
        {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
        {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
        {"name": "session", "in": "cookie", "schema": {"type": "string"}},
    ]
    form = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "array"}}}
    upload = {
        "type": "object",
        "required": ["photo"],
        "properties": {
            "photo": {"type": "string", "format": "binary"},
            "more": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "note": {"type": "string"},
            "place": {"type": "object"},
        },
    }

    def body(kind: str, schema: Any) -> dict[str, Any]:
        return {"required": True, "content": {kind: {"schema": schema}}}

    return {
        "openapi": version,
        "info": {"title": "Pet Shop", "version": "2.1"},
        "paths": {
            "/pets": {
                "get": {"operationId": "pets/list", "tags": ["pets"], "summary": "List pets", "parameters": query,
                        "responses": {"200": json_of({"type": "array", "items": pet})}},
                "post": {"operationId": "addPet", "tags": ["pets", "admin"],
                         "requestBody": body("application/json", pet), "responses": {"201": json_of(pet)}},
            },
            "/pets/{petId}": {
                "parameters": [NAME],
                "get": {"description": "Get one.", "deprecated": True, "responses": {"200": json_of(pet)}},
                "put": {"operationId": "read_pet_pets__petId__put", "responses": {}},
                "delete": {"operationId": "removePet", "responses": {"204": {"description": "gone"}}},
            },
            "/form": {"post": {"operationId": "form",
                               "requestBody": body("application/x-www-form-urlencoded", form), "responses": {}}},
            "/photo": {"post": {"operationId": "photo",
                                "requestBody": body("multipart/form-data", upload), "responses": {}}},
            "/text": {"post": {"operationId": "text", "requestBody": body("text/plain", {}), "responses": {}}},
            "/blob": {"post": {"operationId": "blob", "requestBody": body("image/*", {}), "responses": {}}},
        },
        "components": {"schemas": {"Pet": PET}},
        **more,
    }  # fmt: skip


def served(api: RawServer | str, given: dict[str, Any] | None = None, **options: Any) -> Server:
    server = Server("shop")
    base = api if isinstance(api, str) else f"{api.url}/v2"
    server.add_openapi(given or document(), base=base, **options)
    return server


@asynccontextmanager
async def wire_to(server: Server, version: str) -> AsyncIterator[Wire]:
    try:
        async with memory_wire(server, version) as wire:
            yield wire
    finally:
        await server.aclose()


def always(data: bytes) -> Callable[[Asked], bytes]:
    return lambda request: data


# ------------------------------------------------------------------------------------------ what tools are listed


@BOTH_ERAS
async def test_each_operation_is_a_tool_with_hints_by_its_method(version: str) -> None:
    async with wire_to(served("https://pets.example"), version) as wire:
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
    assert list(tools) == [
        "pets_list", "addPet", "get_pets_by_petId", "read_pet", "removePet", "form", "photo", "text", "blob",
    ]  # fmt: skip
    listing = tools["pets_list"]
    assert (listing["title"], listing["description"]) == ("List pets", "List pets") or version < "2025-06-18"
    assert listing["annotations"] == {"readOnlyHint": True, "openWorldHint": True}
    hints = {name: tool["annotations"] for name, tool in tools.items()}
    assert hints["addPet"] == {"readOnlyHint": False, "idempotentHint": False, "openWorldHint": True}
    assert hints["removePet"] == {
        "readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": True,
    }  # fmt: skip
    assert tools["get_pets_by_petId"]["description"] == "Deprecated.\n\nGet one."
    assert set(listing["inputSchema"]["properties"]) == {
        "tag", "ids", "filter", "page", "bar", "json", "all", "X-Trace", "session",
    }  # fmt: skip
    assert tools["addPet"]["_meta"]["fastmcp"]["tags"] == ["admin", "pets"]


async def test_schemas_are_those_of_one_side_and_of_json_schema() -> None:
    async with wire_to(served("https://pets.example"), MODERN) as wire:
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
    schema = tools["addPet"]["inputSchema"]
    assert schema["required"] == ["body"]
    pet = schema["properties"]["body"]
    assert set(pet["properties"]) == {"name", "secret", "parent", "nick"}
    assert pet["required"] == ["name"]
    assert pet["properties"]["nick"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert pet["properties"]["parent"] == {"$ref": "#/$defs/Pet"}
    assert set(schema["$defs"]) == {"Pet"}
    output = tools["get_pets_by_petId"]["outputSchema"]
    assert set(output["properties"]) == {"id", "name", "parent", "nick"}
    assert tools["pets_list"]["outputSchema"]["type"] == "array"
    assert "outputSchema" not in tools["removePet"]


async def test_openapi_3_1_is_json_schema_already() -> None:
    given = document("3.1.0")
    del given["paths"]["/photo"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"][
        "more"
    ]
    given["components"]["schemas"]["Pet"] = {
        "type": "object",
        "properties": {"age": {"type": ["integer", "null"], "exclusiveMinimum": 0, "description": "In years."}},
    }
    async with wire_to(served("https://pets.example", given), MODERN) as wire:
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
    age = tools["addPet"]["inputSchema"]["properties"]["body"]["properties"]["age"]
    assert age == {"description": "In years.", "anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"allow": ["tag:adm*"]}, {"addPet"}),
        ({"allow": ["GET /pets*"]}, {"pets_list", "get_pets_by_petId"}),
        ({"allow": ["put,delete *"], "rename": {"removePet": "remove"}}, {"read_pet", "remove"}),
        ({"allow": ["/text", "pets/list"]}, {"text", "pets_list"}),
        ({"allow": ["tag:pets"], "deny": ["POST"], "prefix": "shop_"}, {"shop_pets_list"}),
    ],
)
def test_patterns_choose_operations(options: dict[str, Any], names: set[str]) -> None:
    server = served("https://pets.example", **options)
    assert {entry.key for entry in server.catalog.tools} == names


def test_names_are_unique_short_and_do_not_depend_on_the_choice() -> None:
    paths = {f"/{'x' * 80}/{number}": {"get": {"responses": {}}} for number in range(2)}
    paths |= {f"/{number}": {"get": {"operationId": "get it!", "responses": {}}} for number in range(3)}
    given = document(paths=paths)
    names = [entry.key for entry in served("https://pets.example", given).catalog.tools]
    assert names[2:] == ["get_it", "get_it_2", "get_it_3"]
    assert len(set(names)) == 5
    assert all(len(name) <= 64 for name in names)
    assert [entry.key for entry in served("https://pets.example", given, allow=["/2"]).catalog.tools] == ["get_it_3"]


def test_check_lists_what_cannot_be_a_tool() -> None:
    paths = {
        "/a/{id}": {"get": {"responses": {}}},
        "/b": {"trace": {}, "get": {"parameters": [{"$ref": "other.yaml#/p"}]}},
        "/c": {"get": {"servers": [{"url": "https://other.example"}]}},
        "/d": {"get": {"parameters": [{"name": "x", "in": "query", "style": "odd"}]}},
        "/e": {"get": {"requestBody": {"content": {"application/json": {"schema": {"type": 5}}}}}},
        "/f/{id}": {"get": {"parameters": [{"name": "id", "in": "path", "style": "matrix"}]}},
    }
    server = served("https://pets.example", document(paths=paths), allow=["/*", "nothing"])
    texts = {f"{problem.where}: {problem.text}" for problem in server.problems()}
    assert [entry.key for entry in server.catalog.tools] == ["get_d"]
    for text in (
        "GET /a/{id}: the document does not describe id, which is in the path; it is left out",
        "TRACE /b: TRACE cannot be a tool; it is left out",
        "GET /b: the reference other.yaml#/p cannot be followed: it leads to nothing that belongs to the document; "
        "bundle its files into one; it is left out",
        "GET /c: its server is https://other.example; add the document again with that base URL; it is left out",
        "GET /d: the parameter x in 'query' has an unsupported name, style or content; it is left out",
        "GET /f/{id}: the parameter id in 'path' has an unsupported name, style or content; it is left out",
        "the document: the pattern 'nothing' matches no operation",
    ):
        assert text in texts, texts
    assert any(text.startswith("GET /e: its schema is not valid") for text in texts)


# ------------------------------------------------------------------------------------------ what is sent


async def test_parameters_are_written_by_their_styles() -> None:
    async with raw_server(always(as_json([]))) as api, wire_to(served(api), MODERN) as wire:
        await wire.call(
            "pets_list",
            **{
                "tag": ["a&b", "ü"], "ids": [1, 2], "filter": {"age": {"min": 1}, "on": True}, "page": {"size": 5},
                "bar": ["x", "y"], "json": {"k": [1]}, "all": True, "X-Trace": "t1", "session": "a;b",
            },
        )  # fmt: skip
        request = api.asked[0]
    assert request.method == "GET"
    assert request.path == (
        "/v2/pets?tag=a%26b&tag=%C3%BC&ids=1%2C2&filter[age][min]=1&filter[on]=true&size=5&bar=x%7Cy"
        "&json=%7B%22k%22%3A%5B1%5D%7D&all=true"
    )
    assert request.headers["x-trace"] == "t1"
    assert request.headers["cookie"] == "session=a%3Bb"
    assert "authorization" not in request.headers


@pytest.mark.parametrize(
    ("value", "sent"), [("a b", "a%20b"), ("docs/read me.md", "docs%2Fread%20me.md"), ("7?x#y%", "7%3Fx%23y%25")]
)
async def test_a_value_stays_one_part_of_the_path(value: str, sent: str) -> None:
    async with raw_server(always(as_json({"id": 1, "name": "x"}))) as api, wire_to(served(api), MODERN) as wire:
        assert "isError" not in await wire.call("get_pets_by_petId", petId=value)
        assert api.asked[0].path == f"/v2/pets/{sent}"


@pytest.mark.parametrize(
    "value", [None, "..", ".", "", "a/../../admin", "%2e%2e/x", "%252e%252e", "..\\x", "/etc", "x\0y"]
)
async def test_a_value_that_leads_to_another_path_is_refused(value: str | None) -> None:
    given = document("3.1.0")
    given["paths"]["/pets/{petId}"]["parameters"] = [{**NAME, "schema": {}}]
    async with raw_server(always(as_json({}))) as api, wire_to(served(api, given), MODERN) as wire:
        result = await wire.call("get_pets_by_petId", petId=value)
        assert result["isError"]
        assert "path" in result["content"][0]["text"]
        assert not api.asked


async def test_bodies_are_json_forms_files_text_and_bytes() -> None:
    picture = base64.b64encode(b"\x89PNG").decode()
    async with raw_server(always(reply(204))) as api, wire_to(served(api), MODERN) as wire:
        await wire.call("addPet", body={"name": "Rex"})
        assert (api.asked[0].headers["content-type"], api.asked[0].message) == ("application/json", {"name": "Rex"})

        await wire.call("form", body={"a": "1 & 2", "b": ["x", "y"]})
        assert api.asked[1].headers["content-type"] == "application/x-www-form-urlencoded"
        assert api.asked[1].body == b"a=1%20%26%202&b=x&b=y"

        photo = f"data:image/png;name=..%2Fa%22b.png;base64,{picture}"
        await wire.call("photo", body={"photo": photo, "more": ["plain"], "note": "hé", "place": {"x": 1}})
        kind, _, boundary = api.asked[2].headers["content-type"].partition("; boundary=")
        assert kind == "multipart/form-data"
        head, *parts, end = api.asked[2].body.split(f"--{boundary}".encode())
        assert (head, end) == (b"", b"--\r\n")
        assert parts == [
            b'\r\nContent-Disposition: form-data; name="photo"; filename="a%22b.png"\r\n'
            b"Content-Type: image/png\r\n\r\n\x89PNG\r\n",
            b'\r\nContent-Disposition: form-data; name="more"; filename="more"\r\n'
            b"Content-Type: text/plain; charset=utf-8\r\n\r\nplain\r\n",
            '\r\nContent-Disposition: form-data; name="note"\r\n\r\nhé\r\n'.encode(),
            b'\r\nContent-Disposition: form-data; name="place"\r\nContent-Type: application/json\r\n\r\n{"x":1}\r\n',
        ]

        await wire.call("text", body="hé")
        assert (api.asked[3].headers["content-type"], api.asked[3].body) == ("text/plain", "hé".encode())
        await wire.call("blob", body=f"data:image/png;base64,{picture}")
        assert (api.asked[4].headers["content-type"], api.asked[4].body) == ("image/png", b"\x89PNG")
        assert (await wire.call("blob", body="data:image/png;base64,!"))["isError"]


async def test_arguments_are_checked_before_anything_is_sent() -> None:
    async with raw_server(always(as_json({}))) as api, wire_to(served(api), MODERN) as wire:
        result = await wire.call("addPet", body={"name": "x" * 21})
        assert result["isError"]
        assert "longer than 20" in result["content"][0]["text"]
        assert (await wire.call("pets_list", **{"X-Trace": "a\nb: c"}))["isError"]
        assert not api.asked


# ------------------------------------------------------------------------------------------ what comes back


async def answered(data: bytes, tool: str = "read_pet", version: str = MODERN, **options: Any) -> Any:
    async with raw_server(always(data)) as api, wire_to(served(api, **options), version) as wire:
        arguments = {"petId": "1"} if tool in ("read_pet", "get_pets_by_petId", "removePet") else {}
        return await wire.call(tool, **arguments)


async def test_json_is_structured_and_text() -> None:
    result = await answered(reply(200, b'{\n "a": [1,\n 2] }', content_type="application/problem+json"))
    assert result["structuredContent"] == {"a": [1, 2]}
    assert result["content"] == [{"type": "text", "text": '{"a":[1,2]}'}]
    result = await answered(as_json("done"))
    assert result["content"] == [{"type": "text", "text": "done"}]
    assert "structuredContent" not in result


@BOTH_ERAS
async def test_a_list_has_the_shape_of_the_version(version: str) -> None:
    result = await answered(as_json([{"id": 1, "name": "Rex", "more": 1}]), "pets_list", version)
    pets = [{"id": 1, "name": "Rex", "more": 1}]
    assert result["structuredContent"] == (pets if version == MODERN else {"result": pets})


async def test_a_response_that_does_not_fit_says_so_and_shows_it() -> None:
    result = await answered(as_json({"id": "one"}), "get_pets_by_petId")
    assert result["isError"]
    text = result["content"][0]["text"]
    assert text.startswith("GET /pets/{petId} answered 200 OK. The request was carried out, but the response does not")
    assert text.endswith('{"id": "one"}')
    result = await answered(as_json({"id": "one"}), "get_pets_by_petId", output_schemas=False)
    assert result["structuredContent"] == {"id": "one"}
    assert (await answered(reply(200, b"<html>"), "get_pets_by_petId"))["isError"]


async def test_text_images_files_and_nothing() -> None:
    result = await answered(reply(200, b"h\xe9", content_type="text/html; charset=latin-1"))
    assert result["content"] == [{"type": "text", "text": "hé"}]
    result = await answered(reply(200, b"\x89PNG", content_type="image/png"))
    assert result["content"][0] == {"type": "image", "data": "iVBORw==", "mimeType": "image/png"}
    result = await answered(reply(200, b"%PDF", content_type="application/pdf"))
    resource = result["content"][0]["resource"]
    assert (resource["blob"], resource["mimeType"]) == ("JVBERg==", "application/pdf")
    result = await answered(reply(204), "removePet")
    assert result["content"] == [{"type": "text", "text": "204 No Content"}]


async def test_errors_have_the_status_and_a_short_body() -> None:
    result = await answered(as_json({"error": "x" * 5000}, 404))
    assert result["isError"]
    text = result["content"][0]["text"]
    assert text.startswith('PUT /pets/{petId} answered 404 Not Found: {"error": "xxx')
    assert len(text) < 2200
    result = await answered(reply(500, b"\x00\x01", content_type="application/octet-stream"))
    assert result["content"][0]["text"] == "PUT /pets/{petId} answered 500 Internal Server Error"


# ------------------------------------------------------------------------------------------ whose credentials

SCHEMES = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Trace"},
    "asked": {"type": "apiKey", "in": "query", "name": "api_key"},
    "kept": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "basic": {"type": "http", "scheme": "Basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "login": {"$ref": "#/components/x-login"},
    "digest": {"type": "http", "scheme": "digest"},
}


async def test_security_schemes_of_the_document_say_where_credentials_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first requirement whose schemes all have a credential; none where the document asks for none."""
    monkeypatch.setenv("SHOP_SECRET", "secret-012345")
    given = document(security=[{"digest": []}, {"basic": []}])
    given["components"] |= {"securitySchemes": SCHEMES, "x-login": {"type": "oauth2", "flows": {}}}
    pets, pet = given["paths"]["/pets"], given["paths"]["/pets/{petId}"]
    pets["get"]["security"] = [{}, {"key": [], "asked": [], "kept": []}]
    pets["post"]["security"] = [{"login": ["write"]}]
    pet["delete"]["security"] = []
    pet["put"]["security"] = [{"digest": []}]
    secret = "${SHOP_SECRET}"
    security = {"key": secret, "asked": secret, "kept": secret, "basic": f"me:{secret}", "login": secret}
    async with raw_server(lambda request: as_json({"path": request.path, **request.headers})) as api:
        async with wire_to(served(api, given, security=security, prefix="a_"), MODERN) as wire:
            tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
            assert "X-Trace" not in tools["a_pets_list"]["inputSchema"]["properties"]
            said = [await wire.call("a_pets_list", session="s"), await wire.call("a_addPet", body={"name": "x"})]
            said += [await wire.call(f"a_{name}", petId="1") for name in ("get_pets_by_petId", "removePet", "read_pet")]
    listed, added, read, *without = api.asked
    assert listed.headers["x-trace"] == "secret-012345"
    assert listed.headers["cookie"] == "session=s; sid=secret-012345"
    assert listed.path == "/v2/pets?api_key=secret-012345"
    assert added.headers["authorization"] == "Bearer secret-012345"
    basic = base64.b64encode(b"me:secret-012345").decode()
    assert read.headers["authorization"] == f"Basic {basic}"
    assert not any("authorization" in each.headers for each in without)
    assert "012345" not in json.dumps(said)
    assert basic not in json.dumps(said)


@pytest.mark.parametrize(
    ("security", "said"),
    [
        ({"keys": "x"}, "has no scheme keys; it has: key, asked, kept, basic, bearer, digest"),
        ({"digest": "x"}, "the scheme digest is http digest; use headers"),
        ({"key": "a\nb"}, "security, key: the value of X-Trace must not contain line breaks"),
        ({"key": "${NOT_SET}"}, "NOT_SET is not set"),
    ],
)
def test_credentials_that_cannot_be_sent_are_refused(security: dict[str, str], said: str) -> None:
    given = document()
    given["components"]["securitySchemes"] = SCHEMES
    with pytest.raises(ConfigurationError, match=said):
        served("https://pets.example", given, security=security)


async def test_credentials_are_by_reference_and_never_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "key-0123456789")
    token = tmp_path / "token"
    token.write_text("token-one\n")

    def echo(request: Asked) -> bytes:
        return as_json({"path": request.path, **request.headers})

    async with raw_server(echo) as api:
        server = served(
            api, headers={"X-Trace": "${SHOP_KEY}"}, query={"key": "Q${SHOP_KEY}"}, token_file=str(token), prefix="a_",
        )  # fmt: skip
        async with wire_to(server, MODERN) as wire:
            tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
            assert "X-Trace" not in tools["a_pets_list"]["inputSchema"]["properties"]
            result = await wire.call("a_read_pet", petId="1")
            token.write_text("token-two")
            await wire.call("a_read_pet", petId="1")
            token.unlink()
            assert "token file" in (await wire.call("a_read_pet", petId="1"))["content"][0]["text"]
    first, second = api.asked
    assert (first.headers["authorization"], first.headers["x-trace"]) == ("Bearer token-one", "key-0123456789")
    assert first.path == "/v2/pets/1?key=Qkey-0123456789"
    assert second.headers["authorization"] == "Bearer token-two"
    said = json.dumps(result)
    assert "token-one" not in said
    assert "0123456789" not in said
    assert "Bearer ***" in said


async def test_headers_of_the_client_are_passed_on_only_if_named() -> None:
    sent = {"Authorization": "Bearer mine", "Cookie": "c=1", "X-Tenant": "blue", "X-Other": "o"}
    cases: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({}, {}),
        ({"forward_headers": ["x-tenant"]}, {"x-tenant": "blue"}),
        ({"forward_authorization": True}, {"authorization": "Bearer mine"}),
    ]
    for options, passed in cases:
        async with raw_server(always(as_json({}))) as api, serving(server := served(api, **options)) as port:
            await port.ask(modern("tools/call", {"name": "read_pet", "arguments": {"petId": "1"}}, sent))
            headers = api.asked[0].headers
            names = ("authorization", "cookie", "x-tenant", "x-other")
            assert {name: headers[name] for name in names if name in headers} == passed
            await server.aclose()
    for name in ("Authorization", "cookie", "Mcp-Session-Id", "X-Forwarded-For"):
        with pytest.raises(ConfigurationError, match="never passed on"):
            served("https://pets.example", forward_headers=[name])


async def test_callers_at_the_same_time_keep_their_own_headers() -> None:
    def echo(request: Asked) -> bytes:
        return as_json({"who": request.headers["authorization"], "pet": request.path})

    async with raw_server(echo) as api, serving(server := served(api, forward_authorization=True)) as port:

        async def ask(number: int) -> None:
            params = {"name": "read_pet", "arguments": {"petId": str(number)}}
            answer = await port.ask(modern("tools/call", params, {"Authorization": f"Bearer {number % 2}-{number}"}))
            (message,) = answer.messages
            expected = {"who": f"Bearer {number % 2}-{number}", "pet": f"/v2/pets/{number}"}
            assert message["result"]["structuredContent"] == expected

        await asyncio.gather(*(ask(number) for number in range(40)))
        await server.aclose()


async def test_connections_are_closed_at_the_end_and_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Api] = []
    open_pool = Api._opened

    async def recorded(self: Api) -> Any:
        opened.append(self)
        return await open_pool(self)

    monkeypatch.setattr(Api, "_opened", recorded)
    async with raw_server(always(as_json({}))) as api:
        server = served(api)
        for _ in range(2):
            async with wire_to(server, MODERN) as wire:
                assert "isError" not in await wire.call("read_pet", petId="1")
        # A reload replaces the server, whose connections are closed at the end, too.
        changed = served(api, prefix="new_")
        async with memory_wire(server, MODERN) as wire:
            await wire.call("read_pet", petId="1")
            take_over(server, changed)
            assert "isError" not in await wire.call("new_read_pet", petId="1")
        await server.aclose()
    assert len(opened) == 4
    assert len(set(opened)) == 2
    assert all(api._pool is None for api in opened)


# ------------------------------------------------------------------------------------------ which documents


def test_other_documents_are_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("shop")
    for given, text in (
        ({"swagger": "2.0"}, "Swagger 2.0, which is not supported: convert it"),
        ({"openapi": "4.0"}, "openapi: 4.0: OpenAPI 3.0, 3.1 and 3.2 are supported"),
        ({}, "no member openapi"),
        (document(), "names no URL of a server: pass --base URL"),
        (document(servers=[{"url": "/v2"}]), "names no URL of a server"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            server.add_openapi(given)
    for name, content, text in (
        ("a.json", '{"openapi":', "neither JSON nor YAML"),
        ("b.yaml", "a: [", "neither JSON nor YAML"),
        ("c.yaml", "- 1", "an object, not a list"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(ConfigurationError, match=text):
            server.add_openapi(tmp_path / name)
    with pytest.raises(ConfigurationError, match="No such file"):
        server.add_openapi(str(tmp_path / "d.json"))
    for base in ("ftp://x", "https://u:p@x", "https://x?y=1", "https://x/{v}", "x"):
        with pytest.raises(ConfigurationError, match="the base URL"):
            served(base)
    with pytest.raises(ConfigurationError, match="NO_SUCH_VARIABLE is not set"):
        served("https://pets.example", headers={"X-Key": "${NO_SUCH_VARIABLE}"})


async def test_yaml_and_server_variables(tmp_path: Path) -> None:
    text = """
    openapi: 3.0.0
    info: {title: Countries, version: 1}
    servers: [{url: "http://{host}/v1", variables: {host: {default: "127.0.0.1:9"}}}]
    paths:
      /c:
        get:
          operationId: country
          parameters: [{name: code, in: query, schema: {type: string, enum: [no, se, 2020-01-01]}}]
          responses: {200: {description: ok, content: {application/json: {schema: {type: object}}}}}
    """
    (tmp_path / "c.yaml").write_text(text)
    server = Server("c")
    assert server.add_openapi(tmp_path / "c.yaml") == ["country"]
    async with wire_to(server, MODERN) as wire:
        (tool,) = (await wire.result("tools/list"))["tools"]
        assert tool["inputSchema"]["properties"]["code"]["enum"] == ["no", "se", "2020-01-01"]
        assert tool["outputSchema"]["type"] == "object"
        result = await wire.call("country", code="no")
    # The document chose the address, and nobody else did.
    assert "is at a loopback address; if that is intended" in result["content"][0]["text"]
