"""The official OpenAI client, over real sockets, calls agents of the gateway with chat completions and responses.

Each answer is also validated against the client's own types.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import Invocation
from babelgate.gateway import demo
from tests.interop.driver import ClientError, OfficialClient, start_client
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUNS: Final[list[str]] = []
GATE: Final = asyncio.Event()


PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"question": {"type": "string"}}}
ASK: dict[str, Any] = {"type": "function", "name": "ask_caller", "parameters": PARAMETERS, "strict": False}
CHAT_ASK: dict[str, Any] = {"type": "function", "function": {"name": "ask_caller", "parameters": PARAMETERS}}


async def counting(text: str) -> str:
    """Record the call, then fail."""
    RUNS.append(text)
    raise RuntimeError("on purpose")


async def gated(text: str) -> AsyncGenerator[str]:
    yield "first"
    await GATE.wait()
    yield " last"


async def saying(text: str) -> str:
    return text


async def counted(call: Invocation) -> str:
    """Return the number of input messages."""
    return str(len(call.messages))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[OfficialClient]:
    agents: dict[str, Any] = {name: getattr(demo, name) for name in demo.__all__}
    agents |= {each.__name__: each for each in (counted, counting, gated, saying)}
    async with (
        running(tmp_path_factory.mktemp("openai"), agents) as gateway,
        start_client("openai", base_url=f"{gateway.url}/v1") as client,
    ):
        yield client


def user(text: str = "Hello") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def content(completion: Any) -> str:
    return completion["choices"][0]["message"]["content"]


async def test_agents_are_listed_as_models(client: OfficialClient) -> None:
    listed = await client.call("models")
    assert {"echo", "ask"} <= {model["id"] for model in listed}
    assert await client.call("model", name="echo") in listed


async def test_a_completion_arrives_whole_and_in_chunks(client: OfficialClient) -> None:
    completion = await client.call("create", model="echo", messages=user())
    assert (content(completion), completion["choices"][0]["finish_reason"]) == ("Hello", "stop")
    chunks = await client.call("chunks", model="echo", messages=user(), stream_options={"include_usage": True})
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert text == "Hello"
    assert chunks[-1]["usage"]["total_tokens"] >= 0


async def test_a_token_arrives_before_the_next_is_sent(client: OfficialClient) -> None:
    text = ""
    async with client.stream("chunks", model="gated", messages=user()) as chunks:
        async for chunk in chunks:
            text += chunk["choices"][0]["delta"].get("content") or ""
            if text == "first":
                GATE.set()
    assert text == "first last"


async def test_the_helper_accumulates_a_question_that_is_answered(client: OfficialClient) -> None:
    events = await client.call("stream", model="ask", messages=user(), tools=[CHAT_ASK])
    assert "tool_calls.function.arguments.done" in {event["type"] for event in events}
    message = events[-1]["completion"]["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "ask_caller"
    function = {name: call["function"][name] for name in ("name", "arguments")}
    question = {"role": "assistant", "tool_calls": [{"id": call["id"], "type": "function", "function": function}]}
    answer = {"role": "tool", "tool_call_id": call["id"], "content": "Ada"}
    done = await client.call("create", model="ask", messages=[*user(), question, answer], tools=[CHAT_ASK])
    assert content(done) == "Hello, Ada."


async def test_a_question_to_a_client_without_tools_is_text(client: OfficialClient) -> None:
    question = await client.call("create", model="ask", messages=user())
    assert content(question) == "What is your name?"
    talk = [*user(), {"role": "assistant", "content": content(question)}, {"role": "user", "content": "Ada"}]
    assert content(await client.call("create", model="ask", messages=talk)) == "Hello, Ada."


async def test_the_helper_accumulates_the_text(client: OfficialClient) -> None:
    events = await client.call("stream", model="stream", messages=user("one two three"))
    assert [event["type"] for event in events].count("content.delta") >= 3
    assert content(events[-1]["completion"]) == "one two three"


@pytest.mark.parametrize("call", ["parse", "parse_response"])
async def test_structured_answers_are_parsed_and_others_fail(client: OfficialClient, call: str) -> None:
    def request(text: str) -> dict[str, Any]:
        messages = {"messages": user(text)} if call == "parse" else {"input": text}
        return {"model": "saying", "members": {"words": "integer"}, **messages}

    assert await client.call(call, **request('{"words": 2}')) == {"words": 2}
    with pytest.raises(ClientError) as failed:
        await client.call(call, **request('{"words": "two"}'))
    assert (failed.value.data["status"], failed.value.data["body"]["code"]) == (502, "invalid_output")


async def test_a_failed_completion_is_not_retried(client: OfficialClient) -> None:
    with pytest.raises(ClientError) as failed:
        await client.call("create", model="counting", messages=user())
    assert (failed.value.type, failed.value.data["tries"]) == ("InternalServerError", "0")
    assert "on purpose" in failed.value.message
    assert RUNS == ["Hello"]
    with pytest.raises(ClientError) as broken:
        await client.call("chunks", model="counting", messages=user())
    assert broken.value.type == "APIError"
    assert "on purpose" in broken.value.message


async def test_errors_have_the_classes_of_the_client(client: OfficialClient) -> None:
    with pytest.raises(ClientError) as unknown:
        await client.call("create", model="missing", messages=user())
    assert (unknown.value.type, unknown.value.data["body"]["code"]) == ("NotFoundError", "model_not_found")
    with pytest.raises(ClientError) as bad:
        await client.call("create", model="echo", messages=[])
    assert (bad.value.type, bad.value.data["body"]["param"]) == ("BadRequestError", "messages")


async def test_stored_completions_are_read_listed_changed_and_deleted(client: OfficialClient) -> None:
    metadata = {"of": "the official client"}
    completions = [
        await client.call("create", model="echo", messages=user(text), store=True, metadata=metadata)
        for text in ("1", "2", "3")
    ]
    assert content(await client.call("retrieve", completion_id=completions[0]["id"])) == "1"
    listed = await client.call("list", metadata=metadata, limit=2, order="desc")
    assert [content(each) for each in listed] == ["3", "2", "1"]
    changed = await client.call("update", completion_id=completions[0]["id"], metadata={"of": "another"})
    assert (content(changed), changed["metadata"]) == ("1", {"of": "another"})
    assert (await client.call("retrieve", completion_id=completions[0]["id"]))["metadata"] == {"of": "another"}
    await client.call("update", completion_id=completions[0]["id"], metadata=metadata)
    assert (await client.call("delete", completion_id=completions[1]["id"]))["deleted"] is True
    assert [content(each) for each in await client.call("list", metadata=metadata)] == ["3", "1"]


async def test_completions_with_one_thread_id_share_a_thread(client: OfficialClient) -> None:
    headers = [
        await client.call("create_headers", model="echo", messages=user(text), metadata={"thread_id": "mine"})
        for text in ("one", "two")
    ]
    assert len({each["babelgate-thread"] for each in headers}) == 1


# Responses


def text_of(response: Any) -> str:
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in messages for part in item["content"])


async def test_a_response_arrives_whole_and_in_events(client: OfficialClient) -> None:
    response = await client.call("respond", model="echo", input="Hello", metadata={"of": "the official client"})
    assert (text_of(response), response["status"]) == ("Hello", "completed")
    assert await client.call("get_response", response_id=response["id"]) == response
    events = await client.call("response_events", model="echo", input="Hello")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert text_of(events[-1]["response"]) == "Hello"


async def test_the_helper_accumulates_a_response(client: OfficialClient) -> None:
    events = await client.call("response_stream", model="stream", input="one two three")
    assert [event["type"] for event in events].count("response.output_text.delta") >= 3
    assert text_of(events[-1]["response"]) == "one two three"


@pytest.mark.parametrize(("model", "item"), [("tools", "mcp_call"), ("ask", "function_call")])
async def test_the_helper_accepts_all_output_of_an_agent(client: OfficialClient, model: str, item: str) -> None:
    events = await client.call("response_stream", model=model, input="one two", tools=[ASK])
    assert item in {each["type"] for each in events[-1]["response"]["output"]}


async def test_a_question_is_a_function_call_answered_by_its_output(client: OfficialClient) -> None:
    question = await client.call("respond", model="ask", input="Hello", tools=[ASK])
    (call,) = [item for item in question["output"] if item["type"] == "function_call"]
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "Ada"}
    done = await client.call("respond", model="ask", input=[answer], previous_response_id=question["id"])
    assert text_of(done) == "Hello, Ada."
    (item,) = await client.call("input_items", response_id=done["id"])
    assert (item["type"], item["output"]) == ("function_call_output", "Ada")


async def test_a_running_response_is_resumed_after_any_event(client: OfficialClient) -> None:
    GATE.clear()
    response = await client.call("respond", model="gated", input="Hello", background=True)
    assert response["status"] in ("queued", "in_progress")
    first: list[Any] = []
    async with client.stream("replay_response", response_id=response["id"]) as events:
        async for event in events:
            first.append(event)
            if event.get("delta") == "first":
                break
    GATE.set()
    rest = await client.call("replay_response", response_id=response["id"], starting_after=first[-1]["sequence_number"])
    assert text_of(rest[-1]["response"]) == "first last"
    numbers = [event["sequence_number"] for event in (*first, *rest)]
    assert numbers == list(range(len(numbers)))
    again = await client.call("cancel_response", response_id=response["id"])
    assert again["status"] == "completed", "the response had completed before the cancel"


async def test_a_background_response_is_cancelled_and_deleted(client: OfficialClient) -> None:
    response = await client.call("respond", model="slow", input="60", background=True)
    assert (await client.call("cancel_response", response_id=response["id"]))["status"] == "cancelled"
    await client.call("delete_response", response_id=response["id"])
    with pytest.raises(ClientError) as caught:
        await client.call("get_response", response_id=response["id"])
    assert caught.value.type == "NotFoundError"


async def test_a_failed_response_is_not_retried(client: OfficialClient) -> None:
    RUNS.clear()
    with pytest.raises(ClientError) as failed:
        await client.call("respond", model="counting", input="Hello")
    assert (failed.value.type, failed.value.data["tries"]) == ("InternalServerError", "0")
    assert RUNS == ["Hello"]
    events = await client.call("response_events", model="counting", input="Hello")
    assert (events[-1]["type"], events[-1]["response"]["error"]["code"]) == ("response.failed", "server_error")


async def test_a_conversation_continues_from_a_previous_response(client: OfficialClient) -> None:
    one = await client.call("respond", model="echo", input="one")
    two = await client.call("respond", model="echo", input="two", previous_response_id=one["id"])
    assert (text_of(two), two["previous_response_id"]) == ("two", one["id"])
    with pytest.raises(ClientError) as unknown:
        await client.call("respond", model="echo", input="x", previous_response_id="resp_nothing")
    assert unknown.value.data["body"]["code"] == "previous_response_not_found"


# Over a WebSocket


@pytest.mark.parametrize("how", ["turns", "turns_in_a_thread"])
async def test_responses_over_a_websocket_continue_each_other(client: OfficialClient, how: str) -> None:
    turns: list[Any] = [
        {"model": "echo", "input": "one", "store": False},
        {"model": "echo", "input": "two", "store": False, "previous_response_id": 0, "stream_id": "mine"},
        {"model": "stream", "input": "three four five"},
    ]
    events = await client.call(how, turns=turns)
    ended = [event for event in events if event["type"] == "response.completed"]
    assert [text_of(each["response"]) for each in ended] == ["one", "two", "three four five"]
    assert [each.get("stream_id") for each in ended] == [None, "mine", None]
    assert ended[1]["response"]["previous_response_id"] == ended[0]["response"]["id"]
    assert [event["type"] for event in events].count("response.output_text.delta") >= 5


async def test_a_question_is_answered_over_a_websocket(client: OfficialClient) -> None:
    question: dict[str, Any] = {"model": "ask", "input": "Hello", "store": False, "tools": [ASK]}
    events = await client.call("turns", turns=[question])
    (call,) = [item for item in events[-1]["response"]["output"] if item["type"] == "function_call"]
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "Ada"}
    events = await client.call("turns", turns=[{"model": "ask", "input": [answer]}])
    assert text_of(events[-1]["response"]) == "Hello, Ada."


async def test_a_prompt_is_sent_ahead_over_a_websocket(client: OfficialClient) -> None:
    ahead: dict[str, Any] = {"model": "counted", "input": "one", "generate": False}
    events = await client.call("turns", turns=[ahead, {"model": "counted", "input": "two", "previous_response_id": 0}])
    empty, answer = [event["response"] for event in events if event["type"] == "response.completed"]
    assert empty["output"] == []
    assert (text_of(answer), answer["previous_response_id"]) == ("2", empty["id"])


async def test_errors_over_a_websocket_leave_it_usable(client: OfficialClient) -> None:
    GATE.set()
    turns: list[Any] = [
        {"model": "missing", "input": "x", "stream_id": "mine"},
        {"model": "echo", "input": "x", "previous_response_id": "resp_nothing"},
        {"model": "counting", "input": "x"},
        {"steer": {"input": "not so", "previous_response_id": "resp_nothing"}},
        {"model": "gated", "input": "x"},
    ]
    events = await client.call("turns", turns=turns)
    errors = [event for event in events if event["type"] == "error"]
    assert [(each["status"], each["error"]["code"]) for each in errors] == [
        (404, "model_not_found"),
        (400, "previous_response_not_found"),
    ]
    assert errors[0]["stream_id"] == "mine"
    assert [event["type"] for event in events if event["type"].endswith(("failed", "completed"))] == [
        "response.failed",
        "response.steer.failed",
        "response.completed",
    ]


# Conversations


async def test_a_conversation_and_its_items(client: OfficialClient) -> None:
    items = [{"type": "message", "role": "user", "content": "zero"}]
    conversation = await client.call("create_conversation", metadata={"of": "ada"}, items=items)
    at = {"conversation_id": conversation["id"]}
    answer = await client.call("respond", model="echo", input="one", conversation=conversation["id"])
    assert answer["conversation"] == {"id": conversation["id"]}
    question = await client.call("respond", model="ask", input="two", conversation=conversation["id"], tools=[ASK])
    listed = await client.call("conversation_items", **at, order="asc", limit=2)
    assert [item["type"] for item in listed] == ["message"] * 4 + ["function_call"]
    assert listed[-1]["call_id"] == question["output"][0]["call_id"]
    (added,) = await client.call("add_items", **at, items=[{"role": "user", "content": "three"}])
    assert await client.call("get_item", **at, item_id=added["id"]) == added
    assert (await client.call("delete_item", **at, item_id=added["id"]))["id"] == conversation["id"]
    assert len(await client.call("conversation_items", **at)) == 5
    assert (await client.call("update_conversation", **at, metadata={"of": "bob"}))["metadata"] == {"of": "bob"}
    assert (await client.call("get_conversation", **at))["metadata"] == {"of": "bob"}
    assert (await client.call("delete_conversation", **at))["deleted"] is True
