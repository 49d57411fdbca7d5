"""Tools of a caller at an agent of ag2 1.2.1, which has a form for them.

Each message offers them, and the caller of any protocol answers their calls.
"""

from pathlib import Path
from typing import Any

from tests.adapters.a2a.far import Far, card_1_0
from tests.adapters.a2a.replies import DONE, status, task
from tests.running import Running, running

URN = "urn:ag2:client-tools:v1"
TYPE = "application/vnd.ag2.tool-{}+json"
WEATHER = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}


def _call(number: int) -> dict[str, Any]:
    data = {"id": f"call-{number}", "name": "weather", "arguments": f'{{"city": {number}}}'}
    return {"artifactId": data["id"], "name": "weather", "parts": [{"data": data, "mediaType": TYPE.format("call")}]}


def _update(artifact: dict[str, Any]) -> dict[str, Any]:
    return {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "lastChunk": True}}


def _serve(far: Far, tmp_path: Path, *uris: str) -> Any:
    capabilities = {"streaming": True, "extensions": [{"uri": uri} for uri in uris]}
    far.set("GET /.well-known/agent-card.json", card_1_0(far.url, capabilities=capabilities))
    return running(tmp_path, configured={"far": {"url": far.url, "protocol": "a2a"}})


async def _chat(gateway: Running, *messages: Any) -> Any:
    tools = [{"type": "function", "function": WEATHER}]
    body = {"model": "far", "messages": list(messages), "tools": tools, "store": True}
    response = await gateway.http.post("/v1/chat/completions", json=body)
    return response.raise_for_status().json()["choices"][0]["message"]


async def test_offered_tools_are_called_and_answered_by_the_caller(far: Far, tmp_path: Path) -> None:
    first, second = _call(1), _call(2)
    answer = {"artifactId": "a", "parts": [{"text": "It rains."}]}
    far.set(
        "SendStreamingMessage",
        [task(), _update(first), _update(second), status("TASK_STATE_INPUT_REQUIRED")],
        [task(artifacts=[first, second]), _update(answer), DONE],
    )
    async with _serve(far, tmp_path, URN) as gateway:
        hello = {"role": "user", "content": "Hello"}
        calling = await _chat(gateway, hello)
        calls = [(each["function"]["name"], each["function"]["arguments"]) for each in calling["tool_calls"]]
        assert calls == [("weather", '{"city": 1}'), ("weather", '{"city": 2}')]
        results = [
            {"role": "tool", "tool_call_id": each["id"], "content": words}
            for each, words in zip(calling["tool_calls"], ("rain", '{"sun": 1}'), strict=True)
        ]
        final = await _chat(gateway, hello, calling, *results)
    assert final["content"] == "It rains."
    assert not final.get("tool_calls")
    offered, answered = (body["message"] for call, _, body in far.requests if call == "SendStreamingMessage")
    assert offered["extensions"] == answered["extensions"] == [URN]
    offer = {"data": {"tools": [WEATHER]}, "mediaType": TYPE.format("schemas")}
    assert offered["parts"] == [{"text": "Hello"}, offer]
    [result, again] = answered["parts"]
    assert again == offer
    assert result["mediaType"] == TYPE.format("result")
    assert result["data"]["results"] == [
        {"id": "call-1", "name": "weather", "content": "rain"},
        {"id": "call-2", "name": "weather", "content": '{"sun": 1}'},
    ]
    assert [headers["a2a-extensions"] for call, headers, _ in far.requests if call == "SendStreamingMessage"] == [
        URN
    ] * 2


async def test_tools_are_offered_only_with_the_extension(far: Far, tmp_path: Path) -> None:
    answer = {"artifactId": "a", "parts": [{"text": "Hi."}]}
    far.set("SendStreamingMessage", [task("TASK_STATE_COMPLETED", artifacts=[answer])])
    async with _serve(far, tmp_path) as gateway:
        assert (await _chat(gateway, {"role": "user", "content": "Hello"}))["content"] == "Hi."
    assert far.body("SendStreamingMessage")["message"]["parts"] == [{"text": "Hello"}]
