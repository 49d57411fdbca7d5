"""A file that was told by a URL of the gateway comes back to an agent as the bytes behind it."""

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
    async with running(tmp_path_factory.mktemp("files"), agents, limits={"inline": 10}, keys=KEYS) as made:
        yield made


async def told(gateway: Running, who: str, dialect: str, agent: str, url: str | None = None) -> Any:
    """What the agent's answer holds: text, or the URL of a file. With a URL, that file is what is said to it."""

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
            said = (await post("/acp/runs", body))["output"][0]["parts"][0]
            return said.get("content") or said["content_url"]
        case "a2a-1.0":
            part = {"text": "go"} if url is None else {"url": url}
            message = {"messageId": "1", "role": "ROLE_USER", "parts": [part]}
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
            said = await post(f"/a2a/{agent}", body, **{"A2A-Version": "1.0"})
            said = said["result"]["task"]["artifacts"][0]["parts"][0]
            return said.get("text") or said["url"]
        case "a2a-0.3":
            part: Any = {"kind": "text", "text": "go"} if url is None else {"kind": "file", "file": {"uri": url}}
            message = {"kind": "message", "messageId": "1", "role": "user", "parts": [part]}
            params = {"message": message, "configuration": {"blocking": True}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
            said = (await post(f"/a2a/{agent}", body))["result"]["artifacts"][0]["parts"][0]
            return said["text"] if "text" in said else said["file"]["uri"]
        case _:
            content: Any = "go" if url is None else [{"type": "file", "url": url, "mime_type": "image/x-test"}]
            body = {"assistant_id": agent, "input": {"messages": [{"role": "user", "content": content}]}}
            return (await post("/runs/wait", body))["messages"][-1]["content"]


@pytest.mark.parametrize("given", DIALECTS)
@pytest.mark.parametrize("told_by", ["acp", "a2a-1.0", "a2a-0.3"])
async def test_its_owner_hands_it_on(gateway: Running, told_by: str, given: str) -> None:
    url = await told(gateway, "ann", told_by, "draw")
    assert url.startswith(gateway.url)
    seen = await told(gateway, "ann", given, "measure", url)
    assert seen == "256 bytes of image/x-test as picture.bin"


@pytest.mark.parametrize("given", DIALECTS)
async def test_a_data_url_is_the_bytes_in_it(gateway: Running, given: str) -> None:
    url = f"data:image/x-test;base64,{b64encode(PICTURE).decode()}"
    assert (await told(gateway, "ann", given, "measure", url)).startswith("256 bytes of image/x-test")


@pytest.mark.parametrize("given", DIALECTS)
async def test_what_is_not_the_caller_s_own_stays_a_link(gateway: Running, given: str) -> None:
    url = await told(gateway, "ann", "acp", "draw")
    elsewhere = url.replace(gateway.url, "http://files.example")
    for who, link in (("bob", url), ("ann", elsewhere)):
        assert await told(gateway, who, given, "measure", link) == f"a link: {link}"


@pytest.mark.parametrize("tail", ["", "/more", "?a=b", "0"])
async def test_a_path_that_only_looks_like_one_stays_a_link(gateway: Running, tail: str) -> None:
    url = f"{gateway.url}/acp/resources/{'0' * 64}{tail}"
    assert await told(gateway, "ann", "acp", "measure", url) == f"a link: {url}"


async def test_what_langgraph_names_by_its_hash_is_a_resource_of_acp_to_its_owner(gateway: Running) -> None:
    (block,) = await told(gateway, "ann", "langgraph", "draw")
    for who, status in (("ann", 200), ("bob", 404)):
        headers = {"Authorization": f"Bearer {KEYS[who]}"}
        answer = await gateway.http.get(f"/acp/resources/{block['file_id']}", headers=headers)
        assert answer.status_code == status
        assert (answer.content == PICTURE) is (who == "ann")
