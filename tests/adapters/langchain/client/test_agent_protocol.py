"""Client for servers that speak only the Agent Protocol, in either of its published layouts."""

from typing import Any

import httpx
import pytest

from babelgate.adapters.langchain.client import Client
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.event import InterruptRaised, LossNoted, RunEnded, StateSaved, UpstreamBound
from tests.adapters.langchain.far import RUN, THREAD, Far, Frames, Resumable, call, interrupts, numbered
from tests.adapters.langchain.test_client import (
    answer_call,
    answer_to,
    of_kind,
    question_records,
    reattach_call,
    text_of,
)
from tests.adapters.langchain.test_client import without_waits as without_waits
from tests.driving import all_of, fault_of

README = "POST /threads/T/runs/stream"
OPENAPI = "POST /runs/stream"
STREAM: list[tuple[str, Any]] = [
    ("metadata", {"run_id": RUN}),
    ("messages", [{"role": "assistant", "content": "one ", "id": "m1"}, {}]),
    ("messages", [{"role": "assistant", "content": "two", "id": "m1"}, {}]),
    (
        "values",
        {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "one two", "id": "m1"}]},
    ),
]


def run_is(status: str) -> dict[str, Any]:
    return {"run_id": RUN, "thread_id": THREAD, "agent_id": "far", "status": status, "metadata": {}}


@pytest.fixture(params=["readme", "openapi"])
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def far(layout: str) -> Far:
    far = Far()
    far.set("POST /threads", {"thread_id": THREAD, "status": "idle", "metadata": {}})
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "idle", "metadata": {}})
    far.set(README if layout == "readme" else OPENAPI, Frames(STREAM, located=False))
    far.set(f"GET {base(layout)}", run_is("success"))
    far.set(f"POST {base(layout)}/cancel", None, status=204)
    return far


def base(layout: str) -> str:
    return "/threads/T/runs/R" if layout == "readme" else "/runs/R"


def create(layout: str) -> str:
    return README if layout == "readme" else OPENAPI


@pytest.fixture
def agent(http: httpx.AsyncClient) -> Client:
    return Client("http://far", "far", http=http)


async def test_the_layout_is_detected_once(far: Far, agent: Client, layout: str) -> None:
    assert text_of(await all_of(agent.run(call(data={"a": 1})))) == "one two"
    assert text_of(await all_of(agent.run(call()))) == "one two"
    bodies = far.bodies(create(layout))
    assert [(m["role"], m["content"]) for m in bodies[0]["messages"]] == [("user", "Hello")]
    assert (bodies[0]["agent_id"], bodies[0]["input"]) == ("far", {"a": 1})
    # OpenAPI 0.1.6 has the thread in the body, and other names for the modes.
    assert bodies[0].get("thread_id") == (THREAD if layout == "openapi" else None)
    assert bodies[0]["stream_mode"][2] == ("messages" if layout == "openapi" else "messages-tuple")
    assert far.calls().count(README) == (2 if layout == "readme" else 1)


async def test_debug_is_requested_only_from_a_gateway(far: Far, agent: Client, layout: str) -> None:
    far.set("GET /agents/far", {"agent_id": "far", "name": "far", "capabilities": {}})
    for _ in range(2):
        await all_of(agent.run(call()))
    assert all("debug" not in body["stream_mode"] for body in far.bodies(create(layout)))
    assert far.calls().count("GET /agents/far") == 1


async def test_no_states_are_saved(agent: Client) -> None:
    assert of_kind(StateSaved, await all_of(agent.run(call()))) == []


async def test_an_interrupted_run_raises_the_question_of_its_stream(far: Far, agent: Client, layout: str) -> None:
    far.set(create(layout), Frames([STREAM[0], ("updates", interrupts("Name?"))]))
    far.set(f"GET {base(layout)}", run_is("interrupted"))
    [question] = of_kind(InterruptRaised, await all_of(agent.run(call())))
    assert question.message.text == "Name?"
    await all_of(agent.run(answer_call(question_records("0" * 32), answer_to("0" * 32, "Ada"))))
    body = far.bodies(create(layout))[-1]
    assert body["command"] == {"resume": "Ada"}


async def test_an_interrupted_run_reads_its_question_from_the_state(far: Far, agent: Client, layout: str) -> None:
    far.set(f"GET {base(layout)}", run_is("interrupted"))
    far.set("GET /threads/T/state", {"values": {}, "interrupts": [{"value": "Name?", "id": "a"}]})
    [question] = of_kind(InterruptRaised, await all_of(agent.run(call())))
    assert (question.message.text, question.interrupt_id) == ("Name?", "a")


async def test_an_interrupted_run_without_question_was_cancelled(far: Far, agent: Client, layout: str) -> None:
    far.set(f"GET {base(layout)}", run_is("interrupted"))
    [ended] = of_kind(RunEnded, await all_of(agent.run(call())))
    assert ended.status == "cancelled"


async def test_a_failed_run_reads_its_error_from_the_wait(far: Far, agent: Client, layout: str) -> None:
    far.set(f"GET {base(layout)}", run_is("error"))
    error = {"error": "ValueError", "message": "No."}
    far.set(f"GET {base(layout)}/wait", {"run": run_is("error"), "values": {}, "messages": [], "__error__": error})
    assert await fault_of(agent.run(call())) == (FaultCode.AGENT_FAILED, "No.")


async def test_a_failed_run_without_error_has_failed(far: Far, agent: Client, layout: str) -> None:
    far.set(f"GET {base(layout)}", run_is("error"))
    far.set(f"GET {base(layout)}/wait", {"run": run_is("error"), "values": {}})
    code, message = await fault_of(agent.run(call()))
    assert code is FaultCode.AGENT_FAILED and message


async def test_a_broken_stream_without_ids_waits_for_the_result(far: Far, agent: Client, layout: str) -> None:
    far.set(create(layout), Frames(STREAM[:2], cut=True, located=False))
    far.answers[f"GET {base(layout)}"] = [(200, run_is("pending")), (200, run_is("success"))]
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "one two", "id": "m1"}]
    far.set(f"GET {base(layout)}/wait", {"run": run_is("success"), "values": {}, "messages": messages})
    assert text_of(await all_of(agent.run(call()))) == "one two"


async def test_a_broken_stream_with_ids_is_joined(far: Far, agent: Client, layout: str) -> None:
    frames = numbered(STREAM)
    far.set(create(layout), Frames(frames[:2], cut=True, located=False))
    far.set(f"GET {base(layout)}/stream", Resumable(frames))
    assert text_of(await all_of(agent.run(call()))) == "one two"


async def test_messages_of_unknown_form_are_read_from_the_values(far: Far, agent: Client, layout: str) -> None:
    """Read the values, because the protocol does not define the form of streamed messages."""
    frames = [STREAM[0], ("messages", {"role": "assistant", "content": "one"}), ("message", {"x": 1}), STREAM[-1]]
    far.set(create(layout), Frames(frames))
    assert text_of(await all_of(agent.run(call()))) == "one two"


async def test_a_server_without_threads_loses_the_history(far: Far, http: httpx.AsyncClient) -> None:
    far.answers.pop("POST /threads")
    far.set(OPENAPI, Frames(STREAM, located=False))
    far.set("GET /runs/R", run_is("success"))
    events = await all_of(Client("http://far", "far", http=http).run(call()))
    assert text_of(events) == "one two"
    assert [loss.feature for loss in of_kind(LossNoted, events)] == ["history"]
    [bound] = of_kind(UpstreamBound, events)
    assert bound.ids == {"run": RUN}


async def test_closing_the_events_cancels_the_run(far: Far, agent: Client, layout: str) -> None:
    far.set(create(layout), Frames(STREAM[:2], stays_open=True, located=False))
    stream = agent.run(call())
    await anext(stream)
    await anext(stream)
    await stream.aclose()
    assert far.calls()[-1] == f"POST {base(layout)}/cancel"


async def test_a_run_is_reattached_in_the_layout_of_its_server(
    far: Far, agent: Client, http: httpx.AsyncClient, layout: str
) -> None:
    whole = await all_of(agent.run(call()))
    far.set(f"GET {base(layout)}/stream", Resumable(numbered(STREAM)))
    past = [*whole[:2]]
    again = await all_of(Client("http://far", "far", http=http).reattach(reattach_call(past)))
    assert again == whole


async def test_states_cannot_be_updated(agent: Client) -> None:
    with pytest.raises(FaultError) as caught:
        await agent.update_state(call(cause="update", data={"a": 1}, upstream={"thread": THREAD}))
    assert caught.value.fault.code is FaultCode.UNSUPPORTED
