"""A server that speaks the Agent Protocol and nothing else, in either of its published layouts."""

from typing import Any

import httpx
import pytest

from babelgate.adapters.langchain.client import Client
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.event import InterruptRaised, LossNoted, RunEnded, StateSaved, UpstreamBound
from tests.adapters.langchain.far import RUN, THREAD, Far, Frames, Kept, call, interrupts, numbered
from tests.adapters.langchain.test_client import answering, asked, attached, of, reply, words
from tests.adapters.langchain.test_client import at_once as at_once
from tests.driving import all_of, fault_of

README = "POST /threads/T/runs/stream"
OPENAPI = "POST /runs/stream"
SAID: list[tuple[str, Any]] = [
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
    far.set(README if layout == "readme" else OPENAPI, Frames(SAID, located=False))
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


async def test_the_layout_is_found_out_and_kept(far: Far, agent: Client, layout: str) -> None:
    assert words(await all_of(agent.run(call(data={"a": 1})))) == "one two"
    assert words(await all_of(agent.run(call()))) == "one two"
    bodies = far.bodies(create(layout))
    assert [(m["role"], m["content"]) for m in bodies[0]["messages"]] == [("user", "Hello")]
    assert (bodies[0]["agent_id"], bodies[0]["input"]) == ("far", {"a": 1})
    # OpenAPI 0.1.6 has the thread in the body, and other names for the modes.
    assert bodies[0].get("thread_id") == (THREAD if layout == "openapi" else None)
    assert bodies[0]["stream_mode"][2] == ("messages" if layout == "openapi" else "messages-tuple")
    assert far.calls().count(README) == (2 if layout == "readme" else 1)


async def test_a_server_that_is_no_gateway_is_not_asked_for_debug(far: Far, agent: Client, layout: str) -> None:
    far.set("GET /agents/far", {"agent_id": "far", "name": "far", "capabilities": {}})
    for _ in range(2):
        await all_of(agent.run(call()))
    assert all("debug" not in body["stream_mode"] for body in far.bodies(create(layout)))
    assert far.calls().count("GET /agents/far") == 1


async def test_no_revisions_are_told(agent: Client) -> None:
    assert of(StateSaved, await all_of(agent.run(call()))) == []


async def test_an_interrupted_run_asks_what_its_stream_told(far: Far, agent: Client, layout: str) -> None:
    far.set(create(layout), Frames([SAID[0], ("updates", interrupts("Name?"))]))
    far.set(f"GET {base(layout)}", run_is("interrupted"))
    [question] = of(InterruptRaised, await all_of(agent.run(call())))
    assert question.message.text == "Name?"
    await all_of(agent.run(answering(asked("0" * 32), reply("0" * 32, "Ada"))))
    body = far.bodies(create(layout))[-1]
    assert body["command"] == {"resume": "Ada"}


async def test_an_interrupted_run_that_did_not_say_why_is_asked(far: Far, agent: Client, layout: str) -> None:
    far.set(f"GET {base(layout)}", run_is("interrupted"))
    far.set("GET /threads/T/state", {"values": {}, "interrupts": [{"value": "Name?", "id": "a"}]})
    [question] = of(InterruptRaised, await all_of(agent.run(call())))
    assert (question.message.text, question.interrupt_id) == ("Name?", "a")


async def test_an_interrupted_run_that_asks_nothing_was_cancelled(far: Far, agent: Client, layout: str) -> None:
    far.set(f"GET {base(layout)}", run_is("interrupted"))
    [ended] = of(RunEnded, await all_of(agent.run(call())))
    assert ended.status == "cancelled"


async def test_a_failed_run_says_so_where_it_is_waited_for(far: Far, agent: Client, layout: str) -> None:
    far.set(f"GET {base(layout)}", run_is("error"))
    error = {"error": "ValueError", "message": "No."}
    far.set(f"GET {base(layout)}/wait", {"run": run_is("error"), "values": {}, "messages": [], "__error__": error})
    assert await fault_of(agent.run(call())) == (FaultCode.AGENT_FAILED, "No.")


async def test_a_failed_run_that_says_nothing_failed_all_the_same(far: Far, agent: Client, layout: str) -> None:
    far.set(f"GET {base(layout)}", run_is("error"))
    far.set(f"GET {base(layout)}/wait", {"run": run_is("error"), "values": {}})
    code, message = await fault_of(agent.run(call()))
    assert code is FaultCode.AGENT_FAILED and message


async def test_of_a_stream_without_ids_that_breaks_the_rest_is_waited_for(far: Far, agent: Client, layout: str) -> None:
    far.set(create(layout), Frames(SAID[:2], cut=True, located=False))
    far.answers[f"GET {base(layout)}"] = [(200, run_is("pending")), (200, run_is("success"))]
    said = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "one two", "id": "m1"}]
    far.set(f"GET {base(layout)}/wait", {"run": run_is("success"), "values": {}, "messages": said})
    assert words(await all_of(agent.run(call()))) == "one two"


async def test_a_stream_with_ids_that_breaks_is_joined(far: Far, agent: Client, layout: str) -> None:
    frames = numbered(SAID)
    far.set(create(layout), Frames(frames[:2], cut=True, located=False))
    far.set(f"GET {base(layout)}/stream", Kept(frames))
    assert words(await all_of(agent.run(call()))) == "one two"


async def test_messages_of_a_form_that_nobody_knows_are_told_from_the_values(
    far: Far, agent: Client, layout: str
) -> None:
    """What a stream of messages holds is left open."""
    frames = [SAID[0], ("messages", {"role": "assistant", "content": "one"}), ("message", {"x": 1}), SAID[-1]]
    far.set(create(layout), Frames(frames))
    assert words(await all_of(agent.run(call()))) == "one two"


async def test_a_server_without_threads_remembers_nothing_and_that_is_noted(far: Far, http: httpx.AsyncClient) -> None:
    far.answers.pop("POST /threads")
    far.set(OPENAPI, Frames(SAID, located=False))
    far.set("GET /runs/R", run_is("success"))
    events = await all_of(Client("http://far", "far", http=http).run(call()))
    assert words(events) == "one two"
    assert [loss.feature for loss in of(LossNoted, events)] == ["history"]
    [bound] = of(UpstreamBound, events)
    assert bound.ids == {"run": RUN}


async def test_whoever_leaves_cancels(far: Far, agent: Client, layout: str) -> None:
    far.set(create(layout), Frames(SAID[:2], holds=True, located=False))
    stream = agent.run(call())
    await anext(stream)
    await anext(stream)
    await stream.aclose()
    assert far.calls()[-1] == f"POST {base(layout)}/cancel"


async def test_a_run_is_attached_to_again_in_the_layout_that_its_server_has(
    far: Far, agent: Client, http: httpx.AsyncClient, layout: str
) -> None:
    whole = await all_of(agent.run(call()))
    far.set(f"GET {base(layout)}/stream", Kept(numbered(SAID)))
    past = [*whole[:2]]
    again = await all_of(Client("http://far", "far", http=http).reattach(attached(past)))
    assert again == whole


async def test_its_states_cannot_be_changed_here(agent: Client) -> None:
    with pytest.raises(FaultError) as caught:
        await agent.update_state(call(cause="update", data={"a": 1}, upstream={"thread": THREAD}))
    assert caught.value.fault.code is FaultCode.UNSUPPORTED
