"""The official OpenAI client, over real sockets, calling agents of the gateway by chat completions: agents in process,
and others that stand behind A2A and the Agent Protocol. Each answer is checked against the client's own types, too."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio

from gateway import demo
from gateway.agents.registry import connect
from gateway.settings.model import Settings
from tests.interop.driver import ClientError, OfficialClient, start_client
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUNS: Final[list[str]] = []
GATE: Final = asyncio.Event()


async def counting(text: str) -> str:
    """Fails, and counts how often."""
    RUNS.append(text)
    raise RuntimeError("on purpose")


async def gated(text: str) -> AsyncGenerator[str]:
    yield "first"
    await GATE.wait()
    yield " last"


async def saying(text: str) -> str:
    return text


BEHIND: Final = {
    "echo-a2a": ("a2a", "/a2a/echo"),
    "ask-a2a": ("a2a", "/a2a/ask"),
    "echo-ap": ("agent-protocol", "/agent-protocol"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[OfficialClient]:
    agents: dict[str, Any] = {name: getattr(demo, name) for name in demo.__all__}
    agents |= {each.__name__: each for each in (counting, gated, saying)}
    async with running(tmp_path_factory.mktemp("behind")) as far:
        urls = {
            name: {"url": far.url + path, "protocol": protocol, "agent": name.partition("-")[0]}
            for name, (protocol, path) in BEHIND.items()
        }
        registry = await connect(Settings.model_validate({"agents": urls}))
        fronted = {each.info.name: each for each in registry.all()}
        async with (
            running(tmp_path_factory.mktemp("openai"), agents, fronted=fronted) as near,
            start_client("openai", base_url=f"{near.url}/v1") as made,
        ):
            yield made


def user(text: str = "Hello") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def said(completion: Any) -> str:
    return completion["choices"][0]["message"]["content"]


async def test_agents_are_listed_as_models(client: OfficialClient) -> None:
    listed = await client.call("models")
    assert {"echo", "ask", *BEHIND} <= {model["id"] for model in listed}
    assert await client.call("model", name="echo") in listed


@pytest.mark.parametrize("model", ["echo", "echo-a2a", "echo-ap"])
async def test_a_completion_of_any_agent(client: OfficialClient, model: str) -> None:
    made = await client.call("create", model=model, messages=user())
    assert (said(made), made["choices"][0]["finish_reason"]) == ("Hello", "stop")
    chunks = await client.call("chunks", model=model, messages=user(), stream_options={"include_usage": True})
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert text == "Hello"
    assert chunks[-1]["usage"]["total_tokens"] >= 0


async def test_a_token_comes_before_the_agent_says_the_next(client: OfficialClient) -> None:
    text = ""
    async with client.stream("chunks", model="gated", messages=user()) as chunks:
        async for chunk in chunks:
            text += chunk["choices"][0]["delta"].get("content") or ""
            if text == "first":
                GATE.set()
    assert text == "first last"


@pytest.mark.parametrize("model", ["ask", "ask-a2a"])
async def test_a_question_is_a_tool_call_which_the_client_s_helper_adds_up_and_its_result_the_answer(
    client: OfficialClient, model: str
) -> None:
    events = await client.call("stream", model=model, messages=user())
    assert "tool_calls.function.arguments.done" in {event["type"] for event in events}
    message = events[-1]["completion"]["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "ask_caller"
    function = {name: call["function"][name] for name in ("name", "arguments")}
    asked = {"role": "assistant", "tool_calls": [{"id": call["id"], "type": "function", "function": function}]}
    answer = {"role": "tool", "tool_call_id": call["id"], "content": "Ada"}
    done = await client.call("create", model=model, messages=[*user(), asked, answer])
    assert said(done) == "Hello, Ada."


async def test_the_helper_adds_up_the_same_text(client: OfficialClient) -> None:
    events = await client.call("stream", model="stream", messages=user("one two three"))
    assert [event["type"] for event in events].count("content.delta") >= 3
    assert said(events[-1]["completion"]) == "one two three"


async def test_a_structured_answer_is_parsed_and_one_that_does_not_fit_is_an_error(client: OfficialClient) -> None:
    asked: dict[str, Any] = {"model": "saying", "members": {"words": "integer"}}
    assert await client.call("parse", **asked, messages=user('{"words": 2}')) == {"words": 2}
    with pytest.raises(ClientError) as failed:
        await client.call("parse", **asked, messages=user('{"words": "two"}'))
    assert (failed.value.data["status"], failed.value.data["body"]["code"]) == (502, "invalid_output")


async def test_an_agent_that_failed_runs_once(client: OfficialClient) -> None:
    with pytest.raises(ClientError) as failed:
        await client.call("create", model="counting", messages=user())
    assert (failed.value.type, failed.value.data["tries"]) == ("InternalServerError", "0")
    assert "on purpose" in failed.value.message
    assert RUNS == ["Hello"]
    with pytest.raises(ClientError) as broken:
        await client.call("chunks", model="counting", messages=user())
    assert broken.value.type == "APIError"
    assert "on purpose" in broken.value.message


async def test_the_classes_of_errors_are_those_of_openai(client: OfficialClient) -> None:
    with pytest.raises(ClientError) as unknown:
        await client.call("create", model="nobody", messages=user())
    assert (unknown.value.type, unknown.value.data["body"]["code"]) == ("NotFoundError", "model_not_found")
    with pytest.raises(ClientError) as bad:
        await client.call("create", model="echo", messages=[])
    assert (bad.value.type, bad.value.data["body"]["param"]) == ("BadRequestError", "messages")


async def test_stored_completions_are_read_listed_over_pages_and_deleted(client: OfficialClient) -> None:
    metadata = {"of": "the official client"}
    made = [
        await client.call("create", model="echo", messages=user(text), store=True, metadata=metadata)
        for text in ("1", "2", "3")
    ]
    assert said(await client.call("retrieve", completion_id=made[0]["id"])) == "1"
    listed = await client.call("list", metadata=metadata, limit=2, order="desc")
    assert [said(each) for each in listed] == ["3", "2", "1"]
    assert (await client.call("delete", completion_id=made[1]["id"]))["deleted"] is True
    assert [said(each) for each in await client.call("list", metadata=metadata)] == ["3", "1"]


async def test_a_thread_knows_what_was_said_on_it(client: OfficialClient) -> None:
    headers = [
        await client.call("create_headers", model="echo", messages=user(text), metadata={"thread_id": "mine"})
        for text in ("one", "two")
    ]
    assert len({each["babelgate-thread"] for each in headers}) == 1
