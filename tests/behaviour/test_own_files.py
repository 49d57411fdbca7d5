"""Files passed back to an agent by a URL of the gateway: the agent gets the bytes behind the URL."""

from base64 import b64encode
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from babelgate.canonical import FilePart, Invocation
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

PICTURE = bytes(range(256))
KEYS = {"ann": "a-key", "bob": "b-key"}
DIALECTS = ["acp", "a2a-1.0", "a2a-0.3", "langgraph"]


def draw() -> FilePart:
    return FilePart(name="picture.bin", media_type="image/x-test", inline=PICTURE, size=len(PICTURE))


def measure(call: Invocation) -> str:
    (part,) = [part for part in call.messages[-1].parts if isinstance(part, FilePart)]
    if part.inline is None:
        return f"a link: {part.url}"
    assert part.inline == PICTURE
    return f"{len(part.inline)} bytes of {part.media_type} as {part.name}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents = {"draw": draw, "measure": measure}
    async with running(tmp_path_factory.mktemp("files"), agents, limits={"inline": 10}, keys=KEYS) as front:
        yield front


async def content_of(gateway: Running, who: str, dialect: str, agent: str, url: str | None = None) -> Any:
    """Return the content of the agent's answer: text, or the URL of a file.

    If a URL is given, the input is that file.
    """

    async def post(path: str, body: Any, **headers: str) -> Any:
        headers["Authorization"] = f"Bearer {KEYS[who]}"
        answer = await gateway.http.post(path, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    match dialect:
        case "acp":
            part = {"content": "go", "content_type": "text/plain"}
            if url is not None:
                part = {"content_url": url, "content_type": "image/x-test", "name": "picture.bin"}
            body = {"agent_name": agent, "input": [{"role": "user", "parts": [part]}], "mode": "sync"}
            answer_part = (await post("/acp/runs", body))["output"][0]["parts"][0]
            return answer_part.get("content") or answer_part["content_url"]
        case "a2a-1.0":
            part = {"text": "go"} if url is None else {"url": url}
            message = {"messageId": "1", "role": "ROLE_USER", "parts": [part]}
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
            answer_part = await post(f"/a2a/{agent}", body, **{"A2A-Version": "1.0"})
            answer_part = answer_part["result"]["task"]["artifacts"][0]["parts"][0]
            return answer_part.get("text") or answer_part["url"]
        case "a2a-0.3":
            part: Any = {"kind": "text", "text": "go"} if url is None else {"kind": "file", "file": {"uri": url}}
            message = {"kind": "message", "messageId": "1", "role": "user", "parts": [part]}
            params = {"message": message, "configuration": {"blocking": True}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
            answer_part = (await post(f"/a2a/{agent}", body))["result"]["artifacts"][0]["parts"][0]
            return answer_part["text"] if "text" in answer_part else answer_part["file"]["uri"]
        case _:
            content: Any = "go" if url is None else [{"type": "file", "url": url, "mime_type": "image/x-test"}]
            body = {"assistant_id": agent, "input": {"messages": [{"role": "user", "content": content}]}}
            return (await post("/runs/wait", body))["messages"][-1]["content"]


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("source", ["acp", "a2a-1.0", "a2a-0.3"])
async def test_an_owner_passes_a_file_on_between_protocols(gateway: Running, source: str, target: str) -> None:
    url = await content_of(gateway, "ann", source, "draw")
    assert url.startswith(gateway.url)
    content = await content_of(gateway, "ann", target, "measure", url)
    assert content == "256 bytes of image/x-test as picture.bin"


@pytest.mark.parametrize("target", DIALECTS)
async def test_a_data_url_becomes_its_bytes(gateway: Running, target: str) -> None:
    url = f"data:image/x-test;base64,{b64encode(PICTURE).decode()}"
    assert (await content_of(gateway, "ann", target, "measure", url)).startswith("256 bytes of image/x-test")


@pytest.mark.parametrize("target", DIALECTS)
async def test_a_file_of_another_owner_or_host_stays_a_link(gateway: Running, target: str) -> None:
    url = await content_of(gateway, "ann", "acp", "draw")
    elsewhere = url.replace(gateway.url, "http://files.example")
    for who, link in (("bob", url), ("ann", elsewhere)):
        assert await content_of(gateway, who, target, "measure", link) == f"a link: {link}"


@pytest.mark.parametrize("tail", ["", "/more", "?a=b", "0"])
async def test_an_unknown_resource_path_stays_a_link(gateway: Running, tail: str) -> None:
    url = f"{gateway.url}/acp/resources/{'0' * 64}{tail}"
    assert await content_of(gateway, "ann", "acp", "measure", url) == f"a link: {url}"


async def test_a_langgraph_file_id_names_an_acp_resource(gateway: Running) -> None:
    (block,) = await content_of(gateway, "ann", "langgraph", "draw")
    for who, status in (("ann", 200), ("bob", 404)):
        headers = {"Authorization": f"Bearer {KEYS[who]}"}
        answer = await gateway.http.get(f"/acp/resources/{block['file_id']}", headers=headers)
        assert answer.status_code == status
        assert (answer.content == PICTURE) is (who == "ann")
