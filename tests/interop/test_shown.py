"""Output of a gateway agent in other frameworks, each with its own A2A client."""

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
    """Yield a thought, a tool call, an answer with a citation, and the usage."""
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
    async with running(tmp_path_factory.mktemp("gateway"), agents) as gateway:
        yield gateway


def url(gateway: Running, agent: str) -> str:
    return f"{gateway.url}/a2a/{agent}"


@pytest.mark.parametrize("use_legacy", [True, False])
async def test_adk_stores_thought_call_and_answer_and_asks(gateway: Running, use_legacy: bool) -> None:
    async with start_client("adk") as client:

        async def parts(agent: str) -> list[Any]:
            card = f"{url(gateway, agent)}/.well-known/agent-card.json"
            return await client.call("ask", card=card, text="weather", use_legacy=use_legacy)

        thought, call, result, answer = await parts("works")
        assert (thought["text"], thought["thought"]) == ("I should look.", True)
        assert (call["function_call"]["name"], call["function_call"]["args"]) == ("weather", {"city": "Rome"})
        assert result["function_response"]["response"] == {"temp": 21.0}
        assert result["function_response"]["id"] == call["function_call"]["id"]
        assert answer == {"text": ANSWER}
        assert await parts("streams") == [{"text": ANSWER}]
        for agent in ("asks", "approves"):
            [question] = await parts(agent)
            assert question["function_call"]["args"] == {"input_required": QUESTION}


@pytest.mark.parametrize("stream", [True, False])
async def test_agent_framework_shows_answers_and_questions(gateway: Running, stream: bool) -> None:
    async with start_client("agent-framework") as client:

        async def outcomes(agent: str, *texts: str) -> Any:
            return await client.call("ask", base_url=url(gateway, agent), texts=texts, stream=stream)

        [answer] = await outcomes("works", "weather")
        assert (answer["text"], set(answer["updates"])) == (ANSWER, {ANSWER} if stream else set())
        [answer] = await outcomes("streams", "weather")
        assert (answer["text"], answer["updates"]) == (ANSWER, ["It is ", "sunny.", ANSWER] if stream else [])
        question, answer = await outcomes("asks", "Hi", "Ada")
        assert (question["asks"], answer["asks"], answer["text"]) == ([QUESTION], [], "Hello, Ada.")
        [question] = await outcomes("approves", "Hi")
        assert question["asks"] == [QUESTION]


async def test_strands_shows_answers_and_questions(gateway: Running) -> None:
    async with start_client("strands") as client:
        for agent, text, stop in (
            ("works", ANSWER, "end_turn"),
            ("streams", ANSWER, "end_turn"),
            ("asks", QUESTION, "interrupt"),
            ("approves", QUESTION, "interrupt"),
        ):
            answer = await client.call("ask", base_url=url(gateway, agent), text="weather")
            assert (answer["texts"], answer["stop"]) == ([text], stop)
