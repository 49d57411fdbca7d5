"""Bad frames and other owners' ids on WebSockets of the Agent Protocol's event streaming.

Each frame is answered, and the connection stays open. Handshakes, and frames that close a connection, are in
`test_handshakes`.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from uuid import uuid4

import pytest
from websockets.exceptions import ConnectionClosed

from babelgate.canonical.value import Json, JsonObject
from tests.adapters.langchain.watching import Socket
from tests.gateway.conversing import EVERYTHING, PATHS, START, check_socket_works, connected, talking
from tests.gateway.hostile import BODIES, UNKNOWN, mutations
from tests.gateway.hubs import within
from tests.gateway.owning import OwnerIds, Place, look, unknown
from tests.gateway.shape import check_reply
from tests.gateway.siege import check_works, create_targets, dumped
from tests.gateway.valid import COMMANDS, SUBSCRIPTIONS, Command, command, filled
from tests.running import Running

pytestmark = pytest.mark.asyncio(loop_scope="module")


# Frames


async def replies(gateway: Running, path: str, frames: Iterable[tuple[str, str | bytes]]) -> Sequence[str]:
    """Return what is wrong with the answers to the frames, each of which must have one.

    The frames share one connection; a lost connection is replaced.
    """
    found: list[str] = []
    pending = list(frames)
    while pending:
        async with connected(gateway.url, path) as connection:
            while pending:
                name, frame = pending.pop(0)
                try:
                    await connection.send(frame)
                    while (reply := json.loads(await within(connection.recv(), name))).get("type") == "event":
                        pass
                    check_reply(reply)
                except (AssertionError, KeyError, ValueError, ConnectionClosed) as error:
                    found.append(f"{name}: {type(error).__name__}: {error}")
                    break
    return found


@pytest.mark.parametrize("prefix", ["", "/agent-protocol"])
@pytest.mark.parametrize("kind", ["text", "bytes"])
async def test_a_bad_frame_is_answered_and_the_connection_stays_open(gateway: Running, prefix: str, kind: str) -> None:
    texts = {name: body for name, body in BODIES.items() if name not in ("invalid UTF-8", "UTF-16")}
    frames = BODIES if kind == "bytes" else {name: body.decode() for name, body in texts.items()}
    async with connected(gateway.url, f"{prefix}/threads/{uuid4()}/stream") as connection:
        for name, frame in frames.items():
            await connection.send(frame)
            reply = check_reply(json.loads(await within(connection.recv(), name)))
            assert (reply["type"], reply["error"]) == ("error", "invalid_argument"), name
        assert (await Socket(connection).tell("state.get"))["error"] == "no_such_run"
    await check_works(gateway, "/threads")


@pytest.mark.parametrize("each", [*COMMANDS, *SUBSCRIPTIONS], ids=str)
async def test_wrong_types_in_a_commands_fields_are_answered(gateway: Running, each: Command) -> None:
    """Send the frames to an interrupted thread."""
    slots = await create_targets(gateway, "/threads")
    whole = filled(command(each.method, each.valid), slots)
    frames = [(name, dumped(body).decode()) for name, body in mutations(whole)]
    assert await replies(gateway, PATHS[0].format(**slots), frames) == []
    await check_socket_works(gateway.url)


async def test_a_subscription_of_another_connection_is_unknown(gateway: Running) -> None:
    path = PATHS[0].format(thread_id=uuid4())
    async with talking(gateway.url, path) as one, talking(gateway.url, path) as other:
        reply = await one.tell("subscription.subscribe", channels=["values"], subscription_id="mine")
        assert reply["result"]["subscription_id"] == "mine"
        for name in ("mine", "", UNKNOWN, "x" * 100_000, "\0"):
            refused = await other.tell("subscription.unsubscribe", subscription_id=name)
            assert refused["error"] == "no_such_subscription"
            assert len(refused["message"]) < 1_000
        assert (await one.tell("subscription.unsubscribe", subscription_id="mine"))["type"] == "success"
        assert (await one.tell("subscription.unsubscribe", subscription_id="mine"))["error"] == "no_such_subscription"


async def test_many_commands_are_answered_in_order(gateway: Running) -> None:
    count = 500
    async with connected(gateway.url, PATHS[0].format(thread_id=uuid4())) as connection:

        async def send() -> None:
            for number in range(count):
                await connection.send(dumped(command("state.get", {}, number)).decode())

        async def read() -> list[Json]:
            return [json.loads(await connection.recv())["id"] for _ in range(count)]

        _, ids = await within(asyncio.gather(send(), read()), "all answers")
    assert ids == list(range(count))


async def test_a_disconnect_during_a_command_leaves_nothing_behind(gateway: Running) -> None:
    """Check that the started run does not depend on the connection."""
    slots = {"thread_id": str(uuid4())}
    for _ in range(3):
        async with connected(gateway.url, PATHS[0].format(**slots)) as connection:
            await connection.send(dumped(command("subscription.subscribe", EVERYTHING)).decode())
            await connection.send(dumped(command("run.start", START)).decode())
            connection.transport.abort()
    await check_socket_works(gateway.url)
    await check_works(gateway, "/threads")


# Owners


def bob(place: Place, path: str, thread_id: str) -> AbstractAsyncContextManager[Socket]:
    headers = {"Authorization": place.bob.headers["authorization"]}
    return talking(place.gateway.url, path.format(thread_id=thread_id), additional_headers=headers)


def commands_with(ids: OwnerIds) -> Mapping[str, JsonObject]:
    """Return every command that creates no thread, with the given ids as arguments."""
    response: JsonObject = {"namespace": [], "interrupt_id": ids.question, "response": "Bob"}
    return {
        "subscription.reconnect": {**EVERYTHING, "since": 0, "subscription_id": "s", "run_id": ids.asking_run},
        "agent.getTree": {"run_id": ids.asking_run},
        "state.get": {"namespace": []},
        "state.listCheckpoints": {"before": ids.checkpoint_id},
        "input.respond": response,
        "state.fork": {"checkpoint_id": ids.checkpoint_id, "input": "Bob"},
        "input.inject": {"namespace": [], "message": {"role": "user", "content": "Bob"}},
        "subscription.unsubscribe": {"subscription_id": "s"},
    }


@pytest.mark.parametrize("path", PATHS)
async def test_the_ids_of_another_owner_count_as_unknown(place: Place, path: str) -> None:
    things, before = await place.shared_ids()
    replies_: list[list[str]] = []
    for ids in (things, unknown()):
        async with bob(place, path, ids.thread_id) as socket:
            replies_.append(
                [ids.hidden(json.dumps(await socket.tell(each, **what))) for each, what in commands_with(ids).items()]
            )
            assert socket.events == []
    assert replies_[0] == replies_[1]
    assert await look(place.alice, things) == before, "Alice's resources must not change"


@pytest.mark.parametrize("path", PATHS[:4])
async def test_a_thread_of_another_owner_shows_nothing(place: Place, path: str) -> None:
    """Show neither past nor current events of the other owner's thread.

    The caller gets a new thread under its id.
    """
    things = await place.make()
    async with bob(place, path, things.thread_id) as socket:
        assert (await socket.tell("subscription.subscribe", **EVERYTHING))["type"] == "success"
        resume = {"assistant_id": "ask", "command": {"resume": "an answer of alice"}}
        answered = await place.alice.post(f"/threads/{things.thread_id}/runs/wait", json=resume)
        assert "an answer of alice" in answered.text
        before = await look(place.alice, things)
        assert (await socket.tell("state.get"))["error"] == "no_such_run"
        assert socket.events == []
        assert (await socket.tell("run.start", **{**START, "input": "Bob was here"}))["type"] == "success"
        events = json.dumps(await socket.ends())
    assert "Bob was here" in events
    assert "alice" not in events
    assert not any(each in events for each in (things.asking_run, things.question, things.checkpoint_id))
    assert await look(place.alice, things) == before


async def test_ids_of_the_same_owner_are_found(place: Place) -> None:
    """Check that the ids of the tests above are valid for their owner."""
    things = await place.make()
    headers = {"Authorization": place.alice.headers["authorization"]}
    async with talking(
        place.gateway.url, PATHS[0].format(thread_id=things.thread_id), additional_headers=headers
    ) as socket:
        for each, what in commands_with(things).items():
            reply = await socket.tell(each, **what)
            assert reply["type"] == ("error" if each == "input.inject" else "success"), reply
        assert "a thread of alice" in json.dumps(socket.events)
