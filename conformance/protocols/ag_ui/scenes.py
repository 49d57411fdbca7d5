"""Scenes that several probes examine, played once each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from babelgate.conformance.protocols.ag_ui.target import AgUiTarget, Ctx, agent_for, message, request
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

ENDS: Final = ("RUN_FINISHED", "RUN_ERROR")
TOOL: Final[dict[str, Any]] = {
    "name": "get_weather",
    "description": "Return the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@dataclass(frozen=True, slots=True)
class Played:
    """Run whose stream was read to its end, with its request and response."""

    agent: AgUiTarget
    body: dict[str, Any]
    exchange: Exchange
    rest: str = ""
    """Text after the last complete event of the stream; empty if the stream ended with a complete one."""

    @property
    def events(self) -> Sequence[Any]:
        """Events as JSON, with None for each that is not JSON. Another requirement tests their form."""
        return [frame.json_or_none for frame in self.exchange.frames]

    @property
    def types(self) -> Sequence[str]:
        return [str(dig(event, "type")) for event in self.events]

    @property
    def end(self) -> Any:
        """First event that ends the run, or None."""
        return next((event for event in self.events if dig(event, "type") in ENDS), None)

    def of_type(self, *types: str) -> Sequence[Any]:
        return [event for event in self.events if dig(event, "type") in types]

    @property
    def interrupts(self) -> Sequence[Any]:
        return as_list(dig(self.end, "outcome", "interrupts"))


async def play(agent: AgUiTarget, body: dict[str, Any], **options: Any) -> Played:
    """Send a request for a run, and read its stream to the end. Raises Failed if the response is not a stream with at
    least one event."""
    async with agent.stream(body, **options) as stream:
        exchange = stream.exchange
        check(exchange.status == 200, "the status 200", exchange.status, exchange)
        check(exchange.is_stream, "Content-Type text/event-stream", exchange.media_type, exchange)
        await stream.rest_of_it()
        check(bool(exchange.frames), "an event", None, exchange)
        return Played(agent, body, exchange, stream.rest)


async def play_behaviour(ctx: Ctx, behaviour: str) -> Played:
    """Run the agent on a new thread, with the input that triggers a behaviour such as `question`."""
    agent, text = agent_for(ctx, behaviour)
    tools = [TOOL] if behaviour == "calls" else []
    return await play(agent, request(message(text), tools=tools))


async def play_question(ctx: Ctx) -> Played:
    """Make the agent ask a question. Raises NotShown if it finishes without one."""
    played = await play_behaviour(ctx, "question")
    is_done = dig(played.end, "type") == "RUN_FINISHED" and dig(played.end, "outcome", "type") in (None, "success")
    check_shown(not is_done, "question", "finished without a question")
    return played


async def play_questions(ctx: Ctx) -> Played:
    """Make the agent ask two questions at once, and return its run. Raises NotShown if the run finishes without a
    question."""
    played = await play_behaviour(ctx, "questions")
    is_done = dig(played.end, "type") == "RUN_FINISHED" and not played.interrupts
    check_shown(not is_done, "questions", "finished without a question")
    return played


async def resume(played: Played, answer: Any, **options: Any) -> Played:
    """Answer all questions of a run with the payload `answer`, and return the run that the answers begin."""
    answers = [{"interruptId": dig(each, "id"), "status": "resolved", "payload": answer} for each in played.interrupts]
    body = request(*played.body["messages"], threadId=played.body["threadId"], resume=answers)
    return await play(played.agent, body, **options)


async def play_answer(ctx: Ctx) -> Played:
    """Make the agent ask a question, answer it, and return the run that the answer begins."""
    played = await ctx.once(play_question)
    check(bool(played.interrupts), "an interrupt", played.end, played.exchange)
    return await resume(played, ctx.triggers["question"].answer)


async def play_call(ctx: Ctx) -> Played:
    """Make the agent call the tool `TOOL` of the caller, and return its run. Raises NotShown if the agent does not call
    it."""
    played = await play_behaviour(ctx, "calls")
    names = [dig(event, "toolCallName") for event in played.of_type("TOOL_CALL_START")]
    check_shown(TOOL["name"] in names, "calls", f"called {names}")
    return played
