"""What the users of other frameworks see of an agent of the gateway, by the A2A client of each."""

from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import AnnotationPart, Ask, Message, ReasoningPart, TextPart, ToolCall
from babelgate.canonical.event import RunEnded
from tests.interop.driver import start_client
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWER: Final = "It is sunny."
QUESTION: Final = "What is your name?"
APPROVAL: Final = {"type": "object", "properties": {"approved": {"type": "boolean"}}}


async def works(text: str) -> AsyncGenerator[Any]:
    """A thought, a call, an answer in pieces that cites, and what it has cost."""
    yield ReasoningPart(text="I should look.")
    yield ToolCall("weather", {"city": "Rome"}, output={"temp": 21})
    yield Message(parts=(TextPart(text=ANSWER), AnnotationPart(url="https://example.com/a", title="A", start=0, end=5)))
    yield RunEnded(usage={"input_tokens": 11, "output_tokens": 7, "total_tokens": 18})


async def streams(text: str) -> AsyncGenerator[str]:
    yield "It is "
    yield "sunny."


async def approves(text: str) -> AsyncGenerator[Ask | str, Any]:
    answer = yield Ask(QUESTION, kind="approval", schema=APPROVAL)
    yield f"{answer}"


async def asks(text: str) -> AsyncGenerator[Ask | str, Any]:
    answer = yield Ask(QUESTION)
    yield f"Hello, {answer}."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents = {"works": works, "streams": streams, "asks": asks, "approves": approves}
    async with running(tmp_path_factory.mktemp("gateway"), agents) as made:
        yield made


def url(gateway: Running, agent: str) -> str:
    return f"{gateway.url}/a2a/{agent}"


@pytest.mark.parametrize("use_legacy", [True, False])
async def test_adk_keeps_thought_call_and_answer_and_asks(gateway: Running, use_legacy: bool) -> None:
    async with start_client("adk") as client:

        async def kept(agent: str) -> list[Any]:
            card = f"{url(gateway, agent)}/.well-known/agent-card.json"
            return await client.call("ask", card=card, text="weather", use_legacy=use_legacy)

        thought, call, result, answer = await kept("works")
        assert (thought["text"], thought["thought"]) == ("I should look.", True)
        assert (call["function_call"]["name"], call["function_call"]["args"]) == ("weather", {"city": "Rome"})
        assert result["function_response"]["response"] == {"temp": 21.0}
        assert result["function_response"]["id"] == call["function_call"]["id"]
        assert answer == {"text": ANSWER}
        assert await kept("streams") == [{"text": ANSWER}]
        for agent in ("asks", "approves"):
            [asked] = await kept(agent)
            assert asked["function_call"]["args"] == {"input_required": QUESTION}


@pytest.mark.parametrize("stream", [True, False])
async def test_agent_framework_shows_the_answer_and_the_words_of_a_question(gateway: Running, stream: bool) -> None:
    async with start_client("agent-framework") as client:

        async def shown(agent: str, *texts: str) -> Any:
            return await client.call("ask", base_url=url(gateway, agent), texts=texts, stream=stream)

        [told] = await shown("works", "weather")
        assert (told["text"], set(told["updates"])) == (ANSWER, {ANSWER} if stream else set())
        [told] = await shown("streams", "weather")
        assert (told["text"], told["updates"]) == (ANSWER, ["It is ", "sunny.", ANSWER] if stream else [])
        asked, told = await shown("asks", "Hi", "Ada")
        assert (asked["asks"], told["asks"], told["text"]) == ([QUESTION], [], "Hello, Ada.")
        [asked] = await shown("approves", "Hi")
        assert asked["asks"] == [QUESTION]


async def test_strands_gives_the_answer_and_the_words_of_a_question(gateway: Running) -> None:
    async with start_client("strands") as client:
        for agent, text, why in (
            ("works", ANSWER, "end_turn"),
            ("streams", ANSWER, "end_turn"),
            ("asks", QUESTION, "interrupt"),
            ("approves", QUESTION, "interrupt"),
        ):
            told = await client.call("ask", base_url=url(gateway, agent), text="weather")
            assert (told["texts"], told["stop"]) == ([text], why)
