"""CopilotKit's unmodified runtime in front of the gateway."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from tests.interop.driver import start_server
from tests.pairs.ag_ui import events_of
from tests.pairs.cast import Cast
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGENTS: Final = ["ask", "echo", "fail", "history", "outside", "slow"]
WEATHER: Final[Any] = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}


@dataclass(frozen=True)
class Place:
    gateway: Running
    players: Cast
    url: str
    """URL of the runtime."""

    def frontend(self, agent: str) -> "Frontend":
        return Frontend(self.gateway.http, f"{self.url}/agent/{agent}")


class Frontend:
    """A conversation as CopilotKit's front end has it."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self.thread_id = str(uuid4())
        self.http = http
        self.url = url
        self._messages: list[Any] = []

    def body(self, *new: Any, **members: Any) -> dict[str, Any]:
        self._messages += new
        body: dict[str, Any] = {
            "threadId": self.thread_id,
            "runId": str(uuid4()),
            "state": {},
            "tools": [],
            "context": [],
        }
        return {**body, "messages": self._messages, "forwardedProps": {}, **members}

    async def run(self, *new: Any, **members: Any) -> list[Any]:
        return events_of(await self.http.post(f"{self.url}/run", json=self.body(*new, **members)))


def user(text: str) -> dict[str, Any]:
    return {"id": str(uuid4()), "role": "user", "content": text}


def text_of(events: list[Any]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place]:
    players = Cast()
    async with (
        running(tmp_path_factory.mktemp("copilotkit"), players.agents()) as gateway,
        start_server("ui-copilotkit", base_url=gateway.url, agents=AGENTS) as server,
    ):
        yield Place(gateway, players, server.url)


async def test_a_conversation_continues_through_the_runtime(place: Place) -> None:
    frontend = place.frontend("history")
    assert text_of(await frontend.run(user("one"))) == "0 before: one"
    answer = {"id": str(uuid4()), "role": "assistant", "content": "0 before: one"}
    assert text_of(await frontend.run(answer, user("two"))) == "2 before: two"


async def test_a_failed_run_is_an_error_of_the_runtime(place: Place) -> None:
    events = await place.frontend("fail").run(user("on purpose"))
    assert events[-1]["type"] == "RUN_ERROR" and "on purpose" in events[-1]["message"]


async def test_an_answer_continues_a_run_under_the_same_id(place: Place) -> None:
    frontend = place.frontend("ask")
    stopped = (await frontend.run(user("go"), runId="run"))[-1]
    (interrupt,) = stopped["outcome"]["interrupts"]
    resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": "Ada"}]
    assert text_of(await frontend.run(runId="run", resume=resume)) == "Hello, Ada."


async def test_a_tool_of_the_front_end_returns_its_result(place: Place) -> None:
    frontend = place.frontend("outside")
    events = await frontend.run(user("go"), tools=[WEATHER])
    (started,) = [event for event in events if event["type"] == "TOOL_CALL_START"]
    call = {"id": started["toolCallId"], "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    turn = {"id": started["parentMessageId"], "role": "assistant", "toolCalls": [call]}
    result = {"id": str(uuid4()), "role": "tool", "toolCallId": started["toolCallId"], "content": "rain"}
    assert text_of(await frontend.run(turn, result, tools=[WEATHER])) == "['weather']: rain"


async def test_the_stop_button_cancels_if_the_request_says_so(place: Place) -> None:
    place.players.reset()
    frontend = place.frontend("slow")
    body = frontend.body(user("go"), forwardedProps={"babelgate": {"onDisconnect": "cancel"}})
    async with asyncio.timeout(30), frontend.http.stream("POST", f"{frontend.url}/run", json=body) as response:
        async for line in response.aiter_lines():
            if "TEXT_MESSAGE_CONTENT" in line:
                await frontend.http.post(f"{frontend.url}/stop/{frontend.thread_id}")
        await place.players.closed.wait()
