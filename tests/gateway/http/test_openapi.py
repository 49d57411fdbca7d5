"""OpenAPI documents: complete, valid, true for real responses, and compared with the official documents."""

import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from babelgate.adapters import ADAPTERS
from babelgate.gateway.http.openapi import OpenApi
from babelgate.gateway.http.openapi_routes import OWN_REST
from babelgate.gateway.http.operations import GATEWAY, OTHER, Operations, find_protocol
from tests.bridge import client
from tests.gateway.http.official import facts_of, official_facts
from tests.gateway.http.openapi_check import OpenApiValidator
from tests.opened import opened

PAGE: Final = Path(__file__).parents[3] / "docs" / "openapi.md"
PROTOCOLS: Final = (GATEWAY, *(adapter.name for adapter in ADAPTERS))
USER: Final = [{"role": "user", "content": "Hello"}]
A2A: Final = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}


@asynccontextmanager
async def calling(folder: Path) -> AsyncGenerator[httpx.AsyncClient]:
    async with opened(folder) as gateway, client(gateway.app) as http:
        yield http


def differences(document: str, missing: Iterator[str] | Sequence[str]) -> None:
    """Check that facts which are missing are exactly those that the page lists for an official document."""
    rows = re.findall(rf"^\| {re.escape(document)} \| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(missing) == sorted(fact for row in rows for fact in re.findall(r"`([^`]+)`", row))


def unserved(official: Iterator[str] | Sequence[str] | Any, served: Any) -> list[str]:
    """Return the facts of an official document that are not served. A member may be optional here."""
    return [fact for fact in official if fact not in served and fact.removesuffix(" required") not in served]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_document_is_valid_and_describes_the_protocol(tmp_path: Path, protocol: str):
    async with calling(tmp_path) as http:
        response = await http.get(f"/openapi/{protocol}.json")
    assert response.status_code == 200
    document = response.json()
    OpenApiValidator(document).validate()
    assert {find_protocol(path) for path in document["paths"]} == {protocol}


def small_document(**changes: Any) -> dict[str, Any]:
    """Return a document with one operation, changed in some of its members."""
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": changes.pop("items", {})}}}
    content = {"application/json": {"schema": schema}}
    operation = {"operationId": "a", "responses": {"200": {"description": "The result.", "content": content}}}
    document = {"openapi": "3.1.1", "info": {"title": "A", "version": "1"}, "paths": {"/a": {"get": operation}}}
    return {**document, **changes}


@pytest.mark.parametrize(
    ("document", "is_valid"),
    [
        (small_document(items={"type": ["string", "null"], "minLength": 1, "x-other": 1}), True),
        (small_document(items={"type": "text"}), False),
        (small_document(items={"minLength": -1}), False),
        (small_document(items={"anyOf": [{"required": "a"}]}), False),
        (small_document(items={"discriminator": {}}), False),
        (small_document(info={"title": "A"}), False),
        (small_document(paths={"a": {}}), False),
        (small_document(paths={"/a/{b}": {"get": {"responses": {"200": {"description": "."}}}}}), False),
    ],
)
def test_fast_validator_agrees_with_the_official_one(document: dict[str, Any], is_valid: bool):
    for validator in (OpenApiValidator, OpenAPIV31SpecValidator):
        assert validator(document).is_valid() is is_valid


async def test_merged_document_has_every_operation_once(tmp_path: Path):
    async with calling(tmp_path) as http:
        response = await http.get("/openapi.json")
        paths = [path for name in PROTOCOLS for path in (await http.get(f"/openapi/{name}.json")).json()["paths"]]
    document = response.json()
    assert sorted(paths) == list(document["paths"])
    identifiers = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(identifiers) == len(set(identifiers))
    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(re.findall(r'"\$ref":"([^"]+)"', response.text)) <= schemas


async def test_every_operation_is_described_once(tmp_path: Path):
    described = {(GATEWAY, name) for name in OWN_REST.operations}
    for adapter in ADAPTERS:
        assert adapter.rest is not None, adapter.name
        described |= {(adapter.name, name) for name in adapter.rest.operations}
    served: set[tuple[str, str]] = set()
    operations = Operations()
    async with opened(tmp_path) as gateway:
        for route in gateway.app.app.routes:
            for handler in getattr(route, "route_handlers", ()):
                if handler.http_methods - {"OPTIONS", "HEAD"}:
                    served.add(operations.find({"path": route.path, "route_handler": handler, "state": {}}))
    served = {(protocol, name) for protocol, name in served if name != OTHER}
    assert described <= served
    assert {each for each in served - described if each[0] != GATEWAY} == set()


REQUESTS: Final[list[tuple[str, str, Any]]] = [
    ("get", "/acp/agents", None),
    ("post", "/acp/runs", {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}),
    ("post", "/ap/v1/agent/tasks", {"input": "Hello"}),
    ("get", "/ap/v1/agent/tasks", None),
    ("post", "/threads", {}),
    ("post", "/threads/search", {}),
    ("post", "/runs", {"assistant_id": "echo", "input": {"messages": USER}}),
    ("post", "/agent-protocol/runs/wait", {"agent_id": "echo", "messages": USER}),
    ("post", "/assistants/search", {}),
    ("post", "/agents/search", {}),
    ("get", "/info", None),
    ("get", "/v1/models", None),
    ("post", "/v1/chat/completions", {"model": "echo", "messages": USER}),
    ("post", "/v1/responses", {"model": "echo", "input": "Hello"}),
    ("post", "/v1/conversations", {}),
    ("post", "/v1/threads", {}),
    ("post", "/v1/runs", {"assistant_id": "echo", "input": "Hello"}),
    ("post", "/a2a/{agent}/message:send", {"message": A2A}),
    ("get", "/a2a/{agent}/tasks", None),
    ("get", "/a2a/{agent}/.well-known/agent-card.json", None),
    ("get", "/", None),
    ("get", "/readyz", None),
]


async def test_responses_have_the_documented_form(tmp_path: Path):
    headers = {"A2A-Version": "1.0"}
    async with calling(tmp_path) as http:
        document = (await http.get("/openapi.json")).json()
        for method, path, body in REQUESTS:
            response = await http.request(method, path.replace("{agent}", "echo"), json=body, headers=headers)
            check(document, method, path, response)
            refused = await http.request(method, path.replace("{agent}", "no-agent"), json=[1], headers=headers)
            if refused.status_code >= 400:
                check(document, method, path, refused)


def check(document: Mapping[str, Any], method: str, path: str, response: httpx.Response) -> None:
    """Check a response against its schema in the document."""
    responses = document["paths"][path][method]["responses"]
    described = responses.get(str(response.status_code), responses["default"])
    assert response.status_code < 400 or described is responses["default"]
    schema = described["content"]["application/json"]["schema"]
    validator: Any = Draft202012Validator({**schema, "components": document["components"]})
    errors = [
        f"{'.'.join(map(str, error.path))}: {error.message[:200]}" for error in validator.iter_errors(response.json())
    ]
    assert errors == [], f"{method} {path}: {response.text[:300]}"


@pytest.mark.parametrize(
    ("name", "prefix", "title"),
    [("acp", "/acp", "ACP 0.2.0"), ("aief", "", "AIEF v1"), ("agent-protocol", "/agent-protocol", "Agent Protocol")],
)
async def test_official_document_is_served_as_documented(tmp_path: Path, name: str, prefix: str, title: str):
    async with calling(tmp_path) as http:
        document = (await http.get("/openapi.json")).json()
    differences(title, unserved(official_facts(name), facts_of(document, prefix)))


async def test_document_names_the_url_of_the_request(tmp_path: Path):
    async with calling(tmp_path) as http:
        document = (await http.get("/agent/echo/openapi/acp.json")).json()
        page = await http.get("/docs")
    (server,) = document["servers"]
    assert server["url"].endswith("/agent/echo")
    assert (page.status_code, page.headers["location"]) == (302, "console/#/api")


def test_a_document_of_no_protocol_is_unknown():
    with pytest.raises(KeyError):
        OpenApi([], OWN_REST).document("http://gateway", "nothing")
