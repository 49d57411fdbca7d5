"""AG-UI's endpoint: what a request means on a thread, and how its stream ends."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from babelgate.canonical import (
    AgentInfo,
    Ask,
    Event,
    Fault,
    FaultCode,
    Invocation,
    RunStatus,
    TextPart,
    UseTool,
)
from babelgate.canonical.event import MessageStarted, PartAdded, RunEnded, StateSaved
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEATHER: Final = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}


async def recall(call: Invocation) -> str:
    return " ".join(message.text for message in (*call.history, *call.messages))


async def twice(text: str) -> AsyncGenerator[Any, Any]:
    first = yield Ask("First name?")
    last = yield Ask("Last name?", schema={"type": "object"})
    yield f"{first} {last['name']}"


async def both(text: str) -> AsyncGenerator[Any, Any]:
    name, sky = yield [Ask("Your name?"), UseTool("weather", {"city": "Paris"})]
    yield f"{name} sees {sky}"


async def files(call: Invocation) -> str:
    return ", ".join(f"{file.name} {file.media_type} {file.inline or file.url}" for file in call.files)


async def forwarded(call: Invocation) -> str:
    return json.dumps(call.config["ag-ui"], sort_keys=True)


class Counting:
    """Agent that keeps a state."""

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        states = await call.states()
        values: Mapping[str, Any] = {} if states.head is None else states.head.values
        count = values.get("count", 0)
        for step in (1, 2):
            yield StateSaved(values={"padding": "x" * 100, "items": list(range(count + step)), "count": count + step})


class Failing:
    """Agent that fails in the middle of a step, a message and a call."""

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        yield MessageStarted()
        yield PartAdded(part=TextPart(text="half"), open=True)
        fault = Fault(code=FaultCode.AGENT_FAILED, message="on purpose")
        yield RunEnded(status=RunStatus.ERROR, fault=fault)


AGENTS: Final[Mapping[str, Any]] = {each.__name__: each for each in (recall, twice, both, files, forwarded)}
OTHERS: Final[Mapping[str, Any]] = {"counting": Counting(), "failing": Failing()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[httpx.AsyncClient]:
    registered = {
        name: RegisteredAgent(AgentInfo(name=name, input_types=("*/*",)), agent) for name, agent in OTHERS.items()
    }
    async with running(tmp_path_factory.mktemp("ag-ui"), AGENTS, registered=registered) as gateway:
        yield gateway.http


def user(text: str, name: str = "") -> dict[str, Any]:
    return {"id": name or f"id-of-{text}", "role": "user", "content": text}


class Client:
    """Conversation with an agent. Each request contains all messages so far, as those of the official client do."""

    def __init__(self, http: httpx.AsyncClient, agent: str) -> None:
        self.messages: list[dict[str, Any]] = []
        self.run = 0
        self._http = http
        self._agent = agent
        self._thread = str(uuid4())

    async def post(self, *new: dict[str, Any], status: int = 200, **members: Any) -> list[dict[str, Any]]:
        """Return the events of a run, and add its messages to the conversation."""
        self.messages += new
        self.run += 1
        body = {"threadId": self._thread, "runId": f"run-{self.run}", "protocolVersion": "1.0", **members}
        body.setdefault("messages", self.messages)
        response = await self._http.post(f"/ag-ui/{self._agent}", json=body)
        assert response.status_code == status, response.text
        if status != 200:
            return [response.json()["error"]]
        events = events_of(response)
        assert (events[0]["type"], events[0]["threadId"]) == ("RUN_STARTED", self._thread)
        self.messages += [
            {"id": event["messageId"], "role": "assistant", "content": text_of(events, event["messageId"])}
            for event in events
            if event["type"] == "TEXT_MESSAGE_START"
        ]
        return events

    async def connect(self, **members: Any) -> list[dict[str, Any]]:
        body = {"threadId": self._thread, "protocolVersion": "1.0", **members}
        return events_of(await self._http.post(f"/ag-ui/{self._agent}/connect", json=body))


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: ")]


def text_of(events: list[dict[str, Any]], name: str | None = None) -> str:
    return "".join(
        event["delta"]
        for event in events
        if event["type"] == "TEXT_MESSAGE_CONTENT" and name in (None, event["messageId"])
    )


def interrupts_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return events[-1]["outcome"]["interrupts"]


def resolved(interrupt: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}


async def test_only_new_messages_of_the_history_are_read(http: httpx.AsyncClient) -> None:
    client = Client(http, "recall")
    await client.post(user("one"))
    assert text_of(await client.post(user("two"))) == "one one two"
    assert text_of(await client.post(messages=[user("three")])) == "one one two one one two three"


async def test_an_unknown_thread_begins_with_the_history_of_the_request(http: httpx.AsyncClient) -> None:
    answer = {"id": "a", "role": "assistant", "content": "two"}
    drawing: dict[str, Any] = {"id": "b", "role": "activity", "activityType": "PLAN", "content": {"steps": []}}
    client = Client(http, "recall")
    assert text_of(await client.post(user("one"), answer, drawing, user("three"))) == "one two three"


async def test_an_edited_message_continues_from_the_state_before_it(http: httpx.AsyncClient) -> None:
    client = Client(http, "recall")
    await client.post(user("one"))
    common = list(client.messages)
    await client.post(user("two"))
    assert text_of(await client.post(messages=[*common, user("three")])) == "one one three"


async def test_a_repeated_question_of_the_user_is_answered_again(http: httpx.AsyncClient) -> None:
    client = Client(http, "recall")
    await client.post(user("one"))
    await client.post(user("two"))
    assert text_of(await client.post(messages=client.messages[:3])) == "one one two"


async def test_the_first_question_of_a_thread_is_answered_again(http: httpx.AsyncClient) -> None:
    client = Client(http, "recall")
    await client.post(user("one"))
    await client.post(user("two"))
    assert text_of(await client.post(messages=client.messages[:1])) == "one"
    assert text_of(await client.post(messages=[*client.messages[:2], user("three")])).endswith("three")


async def test_a_parent_run_is_the_place_to_continue_from(http: httpx.AsyncClient) -> None:
    client = Client(http, "recall")
    await client.post(user("one"))
    await client.post(user("two"))
    branch = await client.post(messages=[user("three")], parentRunId="run-1")
    assert text_of(branch) == "one one three"
    (error,) = await client.post(user("four"), parentRunId="unknown", status=404)
    assert "parentRunId" in error["message"]


async def test_a_request_that_is_sent_again_replays_its_run(http: httpx.AsyncClient) -> None:
    body = {"threadId": f"thread {uuid4()}", "runId": "r", "messages": [user("one")]}
    first = await http.post("/ag-ui/recall", json=body)
    again = await http.post("/ag-ui/recall", json=body)
    assert again.content == first.content
    assert again.headers["babelgate-run"] == first.headers["babelgate-run"]


async def test_a_new_message_under_a_used_id_begins_a_run(http: httpx.AsyncClient) -> None:
    client = Client(http, "recall")
    await client.post(user("one"))
    events = await client.post(user("two"), runId="run-1")
    assert (text_of(events), events[0]["runId"], events[-1]["runId"]) == ("one one two", "run-1", "run-1")


async def test_answers_sent_again_replay_the_run_that_they_began(http: httpx.AsyncClient) -> None:
    client = Client(http, "twice")
    (question,) = interrupts_of(await client.post(user("go")))
    resume = [resolved(question, "Ada")]
    # CopilotKit 1.75 sends the answer with the id of the run that asked.
    first = await client.post(runId="run-1", resume=resume)
    assert [each["message"] for each in interrupts_of(first)] == ["Last name?"]
    assert await client.post(runId="run-1", resume=resume) == first


async def test_a_payload_that_violates_the_schema_is_refused(http: httpx.AsyncClient) -> None:
    client = Client(http, "twice")
    (first,) = interrupts_of(await client.post(user("go")))
    (second,) = interrupts_of(await client.post(resume=[resolved(first, "Ada")]))
    await client.post(resume=[resolved(second, "Lovelace")], status=422)
    assert text_of(await client.post(resume=[resolved(second, {"name": "Lovelace"})])) == "Ada Lovelace"


async def test_a_request_without_answers_is_refused_while_questions_wait(http: httpx.AsyncClient) -> None:
    client = Client(http, "twice")
    (question,) = interrupts_of(await client.post(user("go")))
    (error,) = await client.post(resume=[{"interruptId": "other", "status": "cancelled"}], status=422)
    assert error["details"]["interrupts"] == [question["id"]]


async def test_a_typed_text_replaces_a_question_that_takes_none(http: httpx.AsyncClient) -> None:
    client = Client(http, "twice")
    await client.post(user("go"))
    (second,) = interrupts_of(await client.post(user("Ada")))
    assert second["message"] == "Last name?"
    assert [each["message"] for each in interrupts_of(await client.post(user("Lovelace")))] == ["First name?"]
    await client.post(resume=[resolved(second, {"name": "late"})], status=422)


async def test_a_question_next_to_a_pending_call_is_the_outcome(http: httpx.AsyncClient) -> None:
    client = Client(http, "both")
    events = await client.post(user("go"), tools=[WEATHER])
    (call,) = [event for event in events if event["type"] == "TOOL_CALL_START"]
    (question,) = interrupts_of(events)
    result = {"id": "result", "role": "tool", "toolCallId": call["toolCallId"], "content": "rain"}
    left = await client.post(result, tools=[WEATHER])
    assert interrupts_of(left) == [question]
    assert text_of(await client.post(resume=[resolved(question, "Ada")], tools=[WEATHER])) == "Ada sees rain"


async def test_a_tool_that_is_not_declared_is_an_interrupt(http: httpx.AsyncClient) -> None:
    client = Client(http, "both")
    reasons = {each["reason"] for each in interrupts_of(await client.post(user("go")))}
    assert reasons == {"input_required", "babelgate:tool_call"}


async def test_all_forms_of_files_arrive(http: httpx.AsyncClient) -> None:
    parts = [
        {"type": "text", "text": "go"},
        {"type": "image", "source": {"type": "data", "value": "AAEC", "mimeType": "image/png"}},
        {
            "type": "document",
            "source": {"type": "url", "value": "https://example.com/a.pdf"},
            "metadata": {"filename": "a"},
        },
        {"type": "binary", "mimeType": "text/csv", "data": "QQ==", "filename": "old.csv"},
    ]
    client = Client(http, "files")
    events = await client.post({"id": "m", "role": "user", "content": parts})
    expected = "None image/png b'\\x00\\x01\\x02', a None https://example.com/a.pdf, old.csv text/csv b'A'"
    assert text_of(events) == expected
    file = {"type": "image", "source": {"type": "file", "value": "handle", "provider": "other"}}
    (error,) = await client.post({"id": "n", "role": "user", "content": [file]}, status=422)
    assert "other" in error["message"]


async def test_context_and_forwarded_props_reach_the_agent(http: httpx.AsyncClient) -> None:
    context = [{"description": "The page", "value": "settings"}]
    props = {"theme": "dark", "babelgate": {"onDisconnect": "cancel"}}
    events = await Client(http, "forwarded").post(user("go"), context=context, forwardedProps=props)
    assert json.loads(text_of(events)) == {"context": context, "forwardedProps": {"theme": "dark"}}


async def test_state_arrives_as_a_snapshot_and_then_as_deltas(http: httpx.AsyncClient) -> None:
    client = Client(http, "counting")
    snapshot, delta = (await client.post(user("one")))[1:3]
    assert (snapshot["type"], snapshot["snapshot"]["count"]) == ("STATE_SNAPSHOT", 1)
    assert delta["delta"] == [
        {"op": "add", "path": "/items/-", "value": 1},
        {"op": "replace", "path": "/count", "value": 2},
    ]
    changed = {"padding": "x", "items": [0, 1], "count": 40}
    again = await client.post(user("two"), state=changed)
    assert again[1]["snapshot"]["count"] == 41
    restated = await client.connect()
    assert next(event["snapshot"]["count"] for event in restated if event["type"] == "STATE_SNAPSHOT") == 42


async def test_a_failed_run_closes_what_is_open_before_its_error(http: httpx.AsyncClient) -> None:
    client = Client(http, "failing")
    kinds = [event["type"] for event in await client.post(user("go"))]
    assert kinds == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_ERROR"]
    assert (await client.connect())[-1]["message"] == "on purpose"


async def test_a_cursor_continues_after_any_frame(http: httpx.AsyncClient) -> None:
    where = {"threadId": f"thread {uuid4()}", "runId": "r"}
    body = {**where, "protocolVersion": "1.0", "messages": [user("go")]}
    frames = (await http.post("/ag-ui/failing", json=body)).text.split("\n\n")[:-1]
    ids = ["", *(frame.partition("\n")[0].removeprefix("id: ") for frame in frames)]
    for count, after in enumerate(ids):
        by_header = await http.post("/ag-ui/failing/connect", json=where, headers={"Last-Event-ID": after})
        by_member = await http.post("/ag-ui/failing/connect", json={**where, "after": after})
        assert by_header.text.split("\n\n")[:-1] == by_member.text.split("\n\n")[:-1] == frames[count:]
    refused = await http.post("/ag-ui/failing/connect", json={**where, "after": "x"})
    assert refused.status_code == 422


async def test_a_newer_major_version_is_refused(http: httpx.AsyncClient) -> None:
    (error,) = await Client(http, "recall").post(user("go"), protocolVersion="2.0", status=422)
    assert error["code"] == "unsupported"
    assert text_of(await Client(http, "recall").post(user("go"), protocolVersion="1.7")) == "go"


async def test_members_in_snake_case_and_null_are_accepted(http: httpx.AsyncClient) -> None:
    body = {
        "thread_id": str(uuid4()),
        "run_id": "r",
        "messages": [user("go")],
        "tools": None,
        "state": None,
        "unknown": 1,
    }
    assert text_of(events_of(await http.post("/ag-ui/recall", json=body))) == "go"


async def test_the_url_of_one_agent_serves_it(http: httpx.AsyncClient) -> None:
    body = {"threadId": f"thread {uuid4()}", "runId": "r", "messages": [user("go")]}
    assert text_of(events_of(await http.post("/agent/recall/ag-ui", json=body))) == "go"
    capabilities = (await http.get("/ag-ui/recall/capabilities")).json()
    assert capabilities["identity"]["name"] == "recall"
    refused = await http.get("/ag-ui/recall")
    assert (refused.status_code, refused.headers["allow"]) == (405, "OPTIONS, POST")


async def test_two_equal_first_requests_start_one_run(http: httpx.AsyncClient) -> None:
    body = {"threadId": str(uuid4()), "runId": "r1", "messages": [user("Hello")]}
    one, other = await asyncio.gather(*(http.post("/ag-ui/recall", json=body) for _ in range(2)))
    assert events_of(one) == events_of(other)
    assert one.headers["babelgate-run"] == other.headers["babelgate-run"]
