"""Client of a model on an OpenAI-compatible server, over a socket: its requests, and its conversion of the answers."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx
import pytest

from babelgate.adapters.kit.server.sse import frame
from babelgate.adapters.openai import client as client_module
from babelgate.adapters.openai.agents import upstream_name
from babelgate.adapters.openai.client import Client, discover
from babelgate.adapters.openai.client.http import base_of
from babelgate.canonical import (
    AnnotationPart,
    Event,
    Fault,
    FaultCode,
    FaultError,
    FilePart,
    Invocation,
    Message,
    RunStatus,
    ToolCallPart,
)
from babelgate.canonical.event import (
    InterruptAnswered,
    LossNoted,
    MessageEnded,
    PartAdded,
    RunEnded,
    ToolEnded,
)
from babelgate.conformance.contract import Dialogue, Transcript, check_agent
from tests import loopback
from tests.adapters.openai.model import BOUND, KEY, Answer, Call, Server, serve
from tests.driving import all_of, bound_ids, raised_fault
from tests.submissions import make

APIS = ("responses", "chat")
USAGE = {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@pytest.fixture
async def far() -> AsyncGenerator[Server]:
    async with serve() as server:
        yield server


@pytest.fixture
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    async with loopback.client() as http_client:
        yield http_client


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest, far: Server) -> str:
    far.has_responses = request.param == "responses"
    return request.param


@pytest.fixture
def agent(far: Server, http: httpx.AsyncClient) -> Client:
    return Client(far.url, "one", headers={"Authorization": f"Bearer {KEY}"}, http=http)


def call(text: str = "Hello big world", **fields: Any) -> Invocation:
    fields.setdefault("messages", (Message.of(text, "user"),))
    fields.setdefault("run_id", "22222222-2222-4222-8222-222222222222")
    return make(Invocation, agent="near", thread_id="t", task_id="k", **fields)


async def fault_without_key(events: AsyncIterator[Event]) -> Fault:
    fault = await raised_fault(events)
    assert KEY not in repr(fault)
    return fault


def path(api: str) -> str:
    return "/v1/responses" if api == "responses" else "/v1/chat/completions"


def conversation(far: Server) -> list[Any]:
    """Return the conversation of the last request."""
    body = far.body()
    return body["messages"] if "messages" in body else body["input"]


def framed(*events: Any) -> list[bytes]:
    return [frame(json.dumps(each).encode()) for each in events]


def some(api: str) -> Any:
    """Return an event with the first word of a stream."""
    if api == "responses":
        return {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": "some"}
    return {"choices": [{"index": 0, "delta": {"content": "some"}}]}


def end_of(events: Sequence[Event]) -> RunEnded:
    assert isinstance(events[-1], RunEnded)
    return events[-1]


def finish_of(transcript: Transcript) -> str | None:
    [finish] = [event.finish for event in transcript.events if isinstance(event, MessageEnded)]
    return finish


# A run


async def test_answer_is_streamed_as_one_message_with_usage(api: str, agent: Client) -> None:
    transcript = await Dialogue(agent).say("Hello big world")
    assert transcript.text == "Hello big world"
    assert [message.role for message in transcript.messages] == ["agent"]
    assert [event.kind for event in transcript.events if event.kind.startswith(("part", "message"))] == [
        "message_started",
        "part_added",
        "part_delta",
        "part_delta",
        "part_ended",
        "message_ended",
    ]
    assert transcript.ended is not None
    assert {name: transcript.ended.usage[name] for name in USAGE} == USAGE


async def test_answer_of_a_server_without_streaming_is_read(api: str, far: Server, agent: Client) -> None:
    far.streams = False
    transcript = await Dialogue(agent).say("Hello big world")
    assert transcript.text == "Hello big world"
    assert transcript.ended is not None
    assert transcript.ended.usage["input_tokens"] == 7
    far.refusals[path(api)] = (200, b"<html>", {})
    assert (await fault_without_key(agent.run(call()))).code is FaultCode.AGENT_INVALID


async def test_request_has_required_members_and_the_key(api: str, far: Server, agent: Client) -> None:
    await all_of(agent.run(call("Hi")))
    request_line, headers, body = far.requests[-1]
    assert request_line == f"POST {path(api)}"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["content-type"] == "application/json"
    expected: dict[str, Any] = {"model": "one", "stream": True}
    if api == "chat":
        expected |= {"messages": [{"role": "user", "content": "Hi"}], "stream_options": {"include_usage": True}}
    else:
        expected |= {"input": [{"role": "user", "content": "Hi"}], "store": True}
    assert body == expected


async def test_reasoning_citations_and_refusals_are_separate_parts(api: str, far: Server, agent: Client) -> None:
    answer = Answer(text="It is so", thought="Is it ?", citations=((0, 2, "http://page"),), refusal="No more")
    far.model = lambda _: answer
    transcript = await Dialogue(agent).say("Hi")
    [message] = transcript.messages
    assert [part.kind for part in message.parts if part.kind != "annotation"] == ["reasoning", "text", "refusal"]
    assert (message.text, transcript.text) == ("It is so", "It is so")
    [cited] = [part for part in message.parts if isinstance(part, AnnotationPart)]
    assert (cited.start, cited.end, cited.url, cited.title) == (0, 2, "http://page", "A page")
    assert finish_of(transcript) == "refusal"


@pytest.mark.parametrize(("finish", "expected"), [("length", "length"), ("content_filter", "refusal")])
async def test_truncated_answer_is_an_answer_with_its_finish_reason(
    api: str, far: Server, agent: Client, finish: str, expected: str
) -> None:
    far.model = lambda _: Answer(text="too lo", finish=finish)
    transcript = await Dialogue(agent).say("Hi")
    assert transcript.text == "too lo"
    assert transcript.fault is None
    assert finish_of(transcript) == expected


async def test_empty_answer_is_an_empty_message(api: str, far: Server, agent: Client) -> None:
    far.model = lambda _: Answer()
    transcript = await Dialogue(agent).say("")
    assert [message.parts for message in transcript.messages] == [()]


async def test_json_answer_is_output_if_json_was_requested(api: str, far: Server, http: httpx.AsyncClient) -> None:
    far.model = lambda _: Answer(text='{"a": 1}')
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    answer_format: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    plain = Client(far.url, "one", http=http)
    for agent, config in (
        (plain, {"response_format": answer_format}),
        (plain, {"text": {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}}}),
        (Client(far.url, "one", http=http, schema=schema), {}),
    ):
        assert end_of(await all_of(agent.run(call(config=config)))).output == {"a": 1}
        form = far.body()["response_format"] if api == "chat" else far.body()["text"]["format"]
        assert (form["json_schema"] if api == "chat" else form)["schema"] == schema
    assert end_of(await all_of(plain.run(call()))).output is None, "nobody asked for JSON"


async def test_answer_that_is_not_json_is_not_output(api: str, far: Server, agent: Client) -> None:
    far.model = lambda _: Answer(text="Sorry, no: NaN")
    ended = end_of(await all_of(agent.run(call(config={"response_format": {"type": "json_object"}}))))
    assert (ended.status, ended.output) == (RunStatus.SUCCESS, None)


async def test_files_are_sent_in_the_form_of_each_api(api: str, far: Server, agent: Client) -> None:
    parts = (
        FilePart(name="a.png", media_type="image/png", inline=b"\x00\x01"),
        FilePart(media_type="image/png", url="http://page/b.png"),
        FilePart(name="c.pdf", media_type="application/pdf", inline=b"%PDF"),
        FilePart(name="d.txt", media_type="text/plain", inline=b"words"),
        FilePart(name="e.bin", media_type="application/zip", url="http://page/e.zip"),
    )
    events = await all_of(agent.run(call(messages=(Message(role="user", parts=parts),))))
    sent = conversation(far)[0]["content"]
    if api == "chat":
        assert sent == [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAE="}},
            {"type": "image_url", "image_url": {"url": "http://page/b.png"}},
            {"type": "file", "file": {"filename": "c.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
            {"type": "text", "text": "d.txt:\nwords\n"},
            {"type": "text", "text": "[file: e.bin]"},
        ]
        assert len([event for event in events if isinstance(event, LossNoted)]) == 2
    else:
        assert sent == [
            {"type": "input_image", "image_url": "data:image/png;base64,AAE=", "detail": "auto"},
            {"type": "input_image", "image_url": "http://page/b.png", "detail": "auto"},
            {"type": "input_file", "filename": "c.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
            {"type": "input_file", "filename": "d.txt", "file_data": "data:text/plain;base64,d29yZHM="},
            {"type": "input_file", "file_url": "http://page/e.zip"},
        ]


# A conversation


async def test_chat_completions_receive_the_whole_conversation_each_time(far: Server, agent: Client) -> None:
    far.has_responses = False
    dialogue = Dialogue(agent)
    await dialogue.say("one")
    await dialogue.say("two")
    assert [(message["role"], message["content"]) for message in conversation(far)] == [
        ("user", "one"),
        ("assistant", "one"),
        ("user", "two"),
    ]


HISTORY = (Message.of("one", "user"), Message.of("eins", "agent"))


async def test_response_continues_the_previous_one_without_repeating_it(far: Server, agent: Client) -> None:
    ids = bound_ids(await all_of(agent.run(call("one"))))
    assert ids == {"run": "resp_1", "context": "resp_1"}
    await all_of(agent.run(call("two", history=HISTORY, upstream={"context": "resp_1"})))
    assert far.body()["previous_response_id"] == "resp_1"
    assert far.body()["input"] == [{"role": "user", "content": "two"}]


@pytest.mark.parametrize("echoes", [True, False], ids=["refuses the id", "does not look at it"])
async def test_server_that_lost_a_response_receives_the_whole_conversation(
    far: Server, agent: Client, echoes: bool
) -> None:
    far.echoes_previous = echoes
    events = await all_of(agent.run(call("two", history=HISTORY, upstream={"context": "resp_9"})))
    assert far.paths()[1:] == ["POST /v1/responses"] * 2
    assert [item["content"] for item in far.body()["input"]] == ["one", "eins", "two"]
    assert "previous_response_id" not in far.body()
    assert [event.kind for event in events].count("message_started") == 1


async def test_response_of_a_server_without_storage_is_not_continued(far: Server, agent: Client) -> None:
    far.keeps = False
    far.model = lambda _: Answer(text="ok")
    raw = {"type": "response.created", "response": {"id": "resp_1", "store": False}}
    done = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "store": False}}
    far.raw = framed(raw, done)
    assert bound_ids(await all_of(agent.run(call()))) == {"run": "resp_1"}


async def test_server_without_responses_is_remembered(far: Server, agent: Client) -> None:
    far.has_responses = False
    for _ in range(2):
        await all_of(agent.run(call()))
    chat = "POST /v1/chat/completions"
    assert far.paths()[1:] == ["POST /v1/responses", chat, chat]


async def test_unknown_model_does_not_count_as_unknown_path(far: Server, agent: Client) -> None:
    error = {"message": "no such model", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}
    far.refusals["/v1/responses"] = (404, {"error": error}, {})
    fault = await fault_without_key(agent.run(call()))
    assert (fault.code, fault.message) == (FaultCode.AGENT_FAILED, "The agent's server answered 404: no such model")
    assert far.paths()[1:] == ["POST /v1/responses"]


async def test_request_is_retried_without_stream_options_if_refused(far: Server, agent: Client) -> None:
    far.has_responses, far.counts = False, False
    for _ in range(2):
        assert (await Dialogue(agent).say("Hi")).text == "Hi"
    assert [("stream_options" in body) for where, _, body in far.requests if where.endswith("completions")] == [
        True,
        False,
        False,
    ]


async def test_first_listed_model_is_used_without_a_name(far: Server, http: httpx.AsyncClient) -> None:
    agent = Client(far.url + "/v1/", http=http)
    for _ in range(2):
        await all_of(agent.run(call()))
    assert far.body()["model"] == "Org/One"
    assert far.paths().count("GET /v1/models") == 1


# Tools of the caller


def asks(*calls: Call, then: str = "It is sunny") -> Any:
    """Return a model that calls tools, and answers with a text once it has their results."""

    def model(messages: Sequence[dict[str, Any]]) -> Answer:
        last = messages[-1]
        answered = last.get("role") == "tool" or last.get("type", "").endswith(("_output", "_response"))
        return Answer(text=then) if answered else Answer(text="I look", calls=calls)

    return model


TWO = (Call("weather", '{"city": "Paris"}', "call_1"), Call("weather", '{"city": "Rome"}', "call_2"))


async def test_caller_tool_calls_are_questions_and_results_are_answers(api: str, far: Server, agent: Client) -> None:
    far.model = asks(*TWO)
    dialogue = Dialogue(agent)
    transcript = await dialogue.say("Weather?")
    assert transcript.text == "I look"
    assert [question.value for question in transcript.questions] == [
        {"name": "weather", "arguments": {"city": "Paris"}, "call_id": "call_1"},
        {"name": "weather", "arguments": {"city": "Rome"}, "call_id": "call_2"},
    ]
    words = [question.message.text for question in transcript.questions]
    assert words == ['weather({"city": "Paris"})', 'weather({"city": "Rome"})']
    part = transcript.questions[0].message.parts[-1]
    assert isinstance(part, ToolCallPart)
    assert (part.call_id, part.name, part.side) == ("call_1", "weather", "caller")
    assert transcript.ended is not None
    assert transcript.ended.status is RunStatus.PAUSED
    assert transcript.ended.usage["total_tokens"] == 12
    transcript = await dialogue.answer("sun", {"degrees": 20})
    assert transcript.text == "It is sunny"
    if api == "chat":
        assert conversation(far) == [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": "I look",
                "tool_calls": [
                    {
                        "id": each.call_id,
                        "type": "function",
                        "function": {"name": each.name, "arguments": each.arguments},
                    }
                    for each in TWO
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
            {"role": "tool", "tool_call_id": "call_2", "content": '{"degrees": 20}'},
        ]


async def test_results_continue_the_response_that_called(far: Server, agent: Client) -> None:
    far.model = asks(*TWO)
    dialogue = Dialogue(agent)
    first = await dialogue.say("Weather?")
    assert bound_ids(first.events) == {"run": "resp_1"}, "a thread does not go on from a call without its result"
    answering = await results(dialogue, "sun", "rain")
    events = await all_of(agent.run(answering(upstream={"run": "resp_1", "context": "resp_0"})))
    assert bound_ids(events) == {"run": "resp_2", "context": "resp_2"}
    assert far.body()["previous_response_id"] == "resp_1"
    assert far.body()["input"] == [
        {"type": "function_call_output", "call_id": "call_1", "output": "sun"},
        {"type": "function_call_output", "call_id": "call_2", "output": "rain"},
    ]


async def results(dialogue: Dialogue, *values: Any) -> Callable[..., Invocation]:
    """Return a function that builds the call with which a hub answers the open questions."""
    question_call = dialogue.call(Message.of("said", "user"), "answer")
    answers = tuple(
        InterruptAnswered(interrupt_id=question.interrupt_id or "", value=value)
        for question, value in zip(dialogue.questions, values, strict=True)
    )

    def answering(**more: Any) -> Invocation:
        return replace(question_call, answers=answers, **more)

    return answering


async def test_results_are_sent_with_history_if_the_call_was_lost(far: Server, agent: Client) -> None:
    far.model = asks(*TWO)
    dialogue = Dialogue(agent)
    await dialogue.say("Weather?")
    far.stored.clear()
    answering = await results(dialogue, "sun", "rain")
    await all_of(agent.run(answering(upstream={"run": "resp_1"})))
    assert far.body()["input"] == [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "I look"},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Paris"}'},
        {"type": "function_call", "call_id": "call_2", "name": "weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "sun"},
        {"type": "function_call_output", "call_id": "call_2", "output": "rain"},
    ]


async def test_answer_to_a_call_missing_in_the_log_is_fault(far: Server, agent: Client) -> None:
    lost = call(cause="answer", answers=(InterruptAnswered(interrupt_id="i", value="Ada"),))
    assert (await fault_without_key(agent.run(lost))).code is FaultCode.AGENT_INVALID
    assert far.requests == []


async def test_declined_call_is_reported_to_the_model(api: str, far: Server, agent: Client) -> None:
    far.model = asks(Call("weather"))
    dialogue = Dialogue(agent)
    await dialogue.say("Weather?")
    assert (await dialogue.decline()).text == "It is sunny"
    last = conversation(far)[-1]
    assert last.get("content", last.get("output")) == "The caller declined to answer."


async def test_calls_of_several_rounds_are_all_sent_again(far: Server, agent: Client) -> None:
    far.has_responses = False
    rounds = iter([Answer(calls=(TWO[0],)), Answer(text="And", calls=(TWO[1],)), Answer(text="Done")])
    far.model = lambda _: next(rounds)
    dialogue = Dialogue(agent)
    await dialogue.say("Weather?")
    await dialogue.answer("sun")
    assert (await dialogue.answer("rain")).text == "Done"
    assert [(message["role"], message.get("content")) for message in conversation(far)] == [
        ("user", "Weather?"),
        ("assistant", None),
        ("tool", "sun"),
        ("assistant", "And"),
        ("tool", "rain"),
    ]


async def test_reasoning_before_a_call_is_sent_back(far: Server, agent: Client) -> None:
    far.has_responses = False
    far.model = lambda messages: (
        Answer(text="ok") if messages[-1]["role"] == "tool" else Answer(thought="I must look", calls=(TWO[0],))
    )
    dialogue = Dialogue(agent)
    await dialogue.say("Weather?")
    await dialogue.answer("sun")
    assert conversation(far)[1]["reasoning_content"] == "I must look"


async def test_caller_tools_are_sent_in_the_form_of_each_api(api: str, far: Server, agent: Client) -> None:
    flat = {"type": "function", **WEATHER["function"], "strict": True}
    choice = {"type": "function", "function": {"name": "weather"}}
    await all_of(agent.run(call(config={"tools": [WEATHER, flat], "tool_choice": choice})))
    body = far.body()
    inner = WEATHER["function"]
    if api == "chat":
        assert body["tools"] == [
            {"type": "function", "function": {**inner, "strict": False}},
            {"type": "function", "function": {**inner, "strict": True}},
        ]
        assert body["tool_choice"] == choice
    else:
        # Functions of the Responses API are strict by default; those of chat completions are not.
        assert body["tools"] == [{"type": "function", **inner, "strict": False}, flat]
        assert body["tool_choice"] == {"type": "function", "name": "weather"}


async def test_approval_of_a_server_tool_is_a_question(far: Server, agent: Client) -> None:
    far.model = asks(Call("remove", '{"path": "x"}', "mcpr_1", "mcp_approval_request"), then="Removed")
    dialogue = Dialogue(agent)
    [question] = (await dialogue.say("Remove x")).questions
    assert question.ask == "approval"
    assert question.answer_schema is not None
    answering = await results(dialogue, {"approve": True})
    events = await all_of(agent.run(answering(upstream={"run": "resp_1"})))
    assert isinstance(events[-1], RunEnded)
    assert far.body()["input"] == [{"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}]


async def test_custom_tool_takes_and_returns_text(api: str, far: Server, agent: Client) -> None:
    far.model = asks(Call("shell", "ls -l", "call_1", "custom"))
    dialogue = Dialogue(agent)
    [question] = (await dialogue.say("List")).questions
    assert question.value == {"name": "shell", "arguments": "ls -l", "call_id": "call_1"}
    assert (await dialogue.answer("a b c")).text == "It is sunny"
    if api == "chat":
        assert conversation(far)[1]["tool_calls"][0]["custom"] == {"name": "shell", "input": "ls -l"}
    else:
        assert [item.get("type") for item in conversation(far)[-2:]] == ["custom_tool_call", "custom_tool_call_output"]


async def test_server_tools_become_activity_and_images_become_files(far: Server, agent: Client) -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    mcp = {"type": "mcp_call", "id": "mcp_1", "status": "failed", "name": "read", "server_label": "files"}
    mcp |= {"arguments": '{"a": 1}', "output": None, "error": "no such file"}
    image = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAE="}
    shell: Any = {"type": "local_shell_call", "id": "sh_1", "status": "completed", "action": {}}
    far.model = lambda _: Answer(text="ok", items=(search, mcp, image, shell))
    transcript = await Dialogue(agent).say("Hi")
    ended = [(event.name, event.fault is None) for event in transcript.events if isinstance(event, ToolEnded)]
    assert ended == [("web_search", True), ("read", False), ("image_generation", True)]
    [artifact] = [event for event in transcript.events if event.kind == "artifact_added"]
    part = getattr(artifact, "part")  # noqa: B009
    assert (part.name, part.media_type, part.size) == ("image.png", "image/png", 2)
    assert ["local_shell_call" in event.how for event in transcript.events if isinstance(event, LossNoted)] == [True]


async def test_commentary_is_progress_and_not_part_of_the_answer(far: Server, agent: Client) -> None:
    content: Any = [{"type": "output_text", "text": "Looking", "annotations": [], "logprobs": []}]
    comment = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "content": content}
    far.model = lambda _: Answer(text="Found", items=({**comment, "phase": "commentary"},))
    transcript = await Dialogue(agent).say("Hi")
    assert [(message.phase, message.text) for message in transcript.messages] == [
        ("progress", "Looking"),
        ("answer", "Found"),
    ]
    assert transcript.text == "Found"


# Errors


def error(message: str, **more: Any) -> Any:
    return {"error": {"message": message, "type": "x", "param": None, "code": None, **more}}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, FaultCode.AGENT_FAILED),
        (401, FaultCode.AGENT_FAILED),
        (403, FaultCode.AGENT_FAILED),
        (408, FaultCode.AGENT_TIMEOUT),
        (422, FaultCode.AGENT_FAILED),
        (429, FaultCode.LIMITED),
        (500, FaultCode.AGENT_UNREACHABLE),
        (503, FaultCode.AGENT_UNREACHABLE),
        (302, FaultCode.AGENT_FAILED),
    ],
)
@pytest.mark.parametrize("body", [error(f"it is {KEY}"), {"detail": KEY}, b"<html>" + KEY.encode(), error(KEY, code=3)])
async def test_error_responses_become_faults_without_the_key(
    api: str, far: Server, agent: Client, status: int, code: FaultCode, body: Any
) -> None:
    for each in (path(api), path("chat")):  # after an unexplained refusal, the client tries chat completions
        far.refusals[each] = (status, body, {"retry-after": "7", "location": "/elsewhere"})
    fault = await fault_without_key(agent.run(call()))
    assert fault.code is code
    assert str(status) in fault.message
    assert fault.details.get("retry_after") == 7
    assert "GET /elsewhere" not in far.paths(), "a redirect to another path of a POST by 302 is no answer"
    assert far.paths()[-1].startswith("POST /v1/")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, {"error": "Unexpected endpoint or method. (POST /v1/responses)"}),
        (200, b"<!doctype html><html></html>"),
        (400, error("Invalid URL (POST /v1/responses)")),
        (422, {"detail": [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required"}]}),
        (405, b""),
    ],
    ids=["200 error", "200 page", "400", "422", "405"],
)
async def test_server_without_responses_receives_a_completion_request(
    far: Server, agent: Client, status: int, body: Any
) -> None:
    kind = {"content-type": "text/html"} if isinstance(body, bytes) else {}
    far.refusals[path("responses")] = (status, body, kind)
    assert (await Dialogue(agent).say("Hi")).text == "Hi"
    assert (await Dialogue(agent).say("Again")).text == "Again"
    assert far.paths().count(f"POST {path('responses')}") == 1, "it is remembered"


async def test_refusal_of_a_server_without_completions_is_passed_on(far: Server, agent: Client) -> None:
    far.refusals[path("responses")] = (400, error("The input is too odd"), {})
    far.refusals[path("chat")] = (404, error("Not Found"), {})
    assert "too odd" in (await fault_without_key(agent.run(call()))).message


async def test_refusal_that_names_a_member_is_passed_on(far: Server, agent: Client) -> None:
    far.refusals[path("responses")] = (400, error("Too long", param="input"), {})
    assert "Too long" in (await fault_without_key(agent.run(call()))).message
    assert f"POST {path('chat')}" not in far.paths()


def chunk(content: str | None, finish: str | None = None, **more: Any) -> Any:
    delta = {} if content is None else {"content": content}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk("one ", ""), chunk("two", ""), chunk(None, "stop")],
        [chunk("one ", "stop"), chunk("two", "stop")],
        [chunk("one "), {**chunk(None), "choices": None}, chunk("two"), chunk(None, "stop")],
        [None, chunk("one "), chunk("two", "stop"), {"choices": None, "usage": None}],
        [{"id": 7, "model": None, **chunk("one ")}, chunk("two", "stop")],
    ],
    ids=["empty reasons", "a reason in each", "choices null", "a chunk null", "odd members"],
)
async def test_completion_lasts_until_its_stream_ends(far: Server, agent: Client, chunks: list[Any]) -> None:
    far.has_responses = False
    for end in ([], [b"data: [DONE]\n\n"]):
        far.raw = [*framed(*chunks), *end]
        assert (await Dialogue(agent).say("Hi")).text == "one two"


async def test_metadata_of_the_caller_is_a_declared_loss(api: str, far: Server, agent: Client) -> None:
    for metadata, losses in (({"ticket": "1"}, ["metadata"]), ({}, [])):
        events = await all_of(agent.run(call(metadata=metadata)))
        assert [event.feature for event in events if isinstance(event, LossNoted)] == losses


async def test_answer_without_choices_is_quoted_in_the_fault(far: Server, agent: Client) -> None:
    far.has_responses = False
    far.refusals[path("chat")] = (200, {"choices": None, "base_resp": {"status_msg": "insufficient balance"}}, {})
    assert "insufficient balance" in (await fault_without_key(agent.run(call()))).message


async def test_error_text_for_a_wrong_key_is_not_repeated(api: str, far: Server, agent: Client) -> None:
    far.refusals[path(api)] = (401, error("Incorrect API key provided: sk-v***6789", code="invalid_api_key"), {})
    fault = await fault_without_key(agent.run(call()))
    assert fault.message == "The agent's server answered 401: the gateway is not authenticated"
    assert "6789" not in repr(fault)


async def test_failure_within_a_stream_fails_the_run(api: str, far: Server, agent: Client) -> None:
    failed = {"type": "response.failed", "response": {"id": "r", "status": "failed", "error": {"message": "broke"}}}
    error_event = {"type": "error", "message": "broke", "code": None, "param": None, "sequence_number": 3}
    bodies = (
        [error("broke")] if api == "chat" else [error("broke"), failed, error_event, {**error_event, **error("broke")}]
    )
    for body in bodies:
        far.raw = framed(some(api), body)
        fault = await fault_without_key(agent.run(call()))
        assert (fault.code, fault.message) == (FaultCode.AGENT_FAILED, "broke")


@pytest.mark.parametrize("frames", [0, 1, 3])
async def test_broken_stream_is_not_an_answer(api: str, far: Server, agent: Client, frames: int) -> None:
    far.cut = frames
    assert (await fault_without_key(agent.run(call()))).code is FaultCode.AGENT_UNREACHABLE


async def test_stream_without_an_end_event_is_not_an_answer(api: str, far: Server, agent: Client) -> None:
    far.raw = framed(some(api))
    fault = await fault_without_key(agent.run(call()))
    assert (fault.code, fault.message) == (
        FaultCode.AGENT_UNREACHABLE,
        "The agent's stream ended before its answer did",
    )


@pytest.mark.parametrize("ending", ["done without a reason", "a reason without done"])
async def test_either_end_of_a_completion_is_sufficient(far: Server, agent: Client, ending: str) -> None:
    far.has_responses = False
    chunk = some("chat")
    if ending == "done without a reason":
        far.raw = [*framed(chunk), b"data: [DONE]\n\n"]
    else:
        chunk["choices"][0]["finish_reason"] = "stop"
        far.raw = [b": a comment\n\n", *framed(chunk)]
    assert (await Dialogue(agent).say("Hi")).text == "some"


@pytest.mark.parametrize(
    "garbage",
    [b"data: {\n\n", b"data: []\n\n", b"data: {}\n\n", b'data: {"type": 1, "choices": 1}\n\n', b"data: \xff\n\n"],
)
async def test_garbage_is_blamed_on_the_agent(api: str, far: Server, agent: Client, garbage: bytes) -> None:
    far.raw = [garbage]
    fault = await fault_without_key(agent.run(call()))
    assert fault.code in (FaultCode.AGENT_INVALID, FaultCode.AGENT_UNREACHABLE)


async def test_missing_server_is_unreachable(http: httpx.AsyncClient) -> None:
    fault = await fault_without_key(Client("http://127.0.0.1:1", "one", http=http).run(call()))
    assert fault.code is FaultCode.AGENT_UNREACHABLE


async def test_silent_server_causes_a_timeout(api: str, far: Server, http: httpx.AsyncClient) -> None:
    far.holds = True
    far.raw = []
    agent = Client(far.url, "one", http=http, timeout=httpx.Timeout(5, read=0.05))
    assert (await fault_without_key(agent.run(call()))).code is FaultCode.AGENT_TIMEOUT


async def test_run_ends_although_the_server_keeps_the_connection_open(
    api: str, far: Server, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "DRAIN", 0.01)
    far.holds = True
    assert (await Dialogue(agent).say("Hello big world")).text == "Hello big world"


# Cancel, contract, discovery


async def test_closing_the_iterator_disconnects_from_the_server(api: str, far: Server, agent: Client) -> None:
    far.holds = True
    far.raw = framed(some(api))
    async with asyncio.timeout(BOUND):
        async with aclosing(agent.run(call())) as events:
            async for event in events:
                if isinstance(event, PartAdded):
                    break
        await far.left.wait()


@pytest.mark.parametrize("kind", ["plain", "calling", "whole", "uncounted"])
async def test_client_keeps_the_contract_of_agents(api: str, far: Server, http: httpx.AsyncClient, kind: str) -> None:
    far.streams, far.counts = kind != "whole", kind != "uncounted"
    if kind == "calling":
        far.model = asks(*TWO)
    await check_agent(lambda: Client(far.url, "one", http=http), bound=BOUND)


async def test_models_of_a_server_become_agents_with_valid_names(far: Server, http: httpx.AsyncClient) -> None:
    infos = await discover(far.url, http)
    assert [(info.name, upstream_name(info)) for info in infos] == [("org-one", "Org/One"), ("two", "two")]
    assert not any(info.remembers for info in infos), "a server may forget, and is told again then"


async def test_server_without_a_list_of_models_is_rejected(far: Server, http: httpx.AsyncClient) -> None:
    far.refusals["/v1/models"] = (200, {"agents": []}, {})
    with pytest.raises(FaultError) as caught:
        await discover(far.url, http)
    assert caught.value.fault.code is FaultCode.AGENT_INVALID


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://host", "http://host/v1"),
        ("http://host/", "http://host/v1"),
        ("http://host/v1/", "http://host/v1"),
        ("https://host/api/v1", "https://host/api/v1"),
        ("https://host/v1beta/openai/", "https://host/v1beta/openai"),
        ("https://host/agent/echo", "https://host/agent/echo/v1"),
    ],
)
def test_base_url_is_derived_from_the_configured_url(url: str, base: str) -> None:
    assert base_of(url) == base
