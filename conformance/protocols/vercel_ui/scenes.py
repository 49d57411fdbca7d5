"""Scenes of the protocol: requests whose responses several probes examine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from babelgate.conformance.protocols.vercel_ui.target import (
    DONE,
    ChatTarget,
    Ctx,
    agent_for,
    has_type,
    new_id,
    request,
    text_in,
    user,
)
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import Exchange, as_list, as_object, dig

TOOL: Final[Mapping[str, Any]] = {
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
"""Declaration of the page's tool `get_weather`, in the form in which `AssistantChatTransport` declares tools."""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """Response to one POST: its HTTP exchange and chunks, and the body of the request."""

    exchange: Exchange
    chunks: Sequence[Any]
    is_whole: bool
    body: Mapping[str, Any]

    @property
    def message_id(self) -> Any:
        return next((dig(chunk, "messageId") for chunk in self.chunks if has_type(chunk, "start")), None)

    @property
    def text(self) -> str:
        return text_in(self.chunks)

    @property
    def reason(self) -> Any:
        return next((dig(chunk, "finishReason") for chunk in self.chunks if has_type(chunk, "finish")), None)

    def all(self, *kinds: str) -> list[Any]:
        """Return the chunks whose `type` is one of `kinds`."""
        return [chunk for chunk in self.chunks if has_type(chunk, *kinds)]


async def post(target: ChatTarget, body: Mapping[str, Any], **options: Any) -> ChatAnswer:
    """Post a request, and return the response after its stream has ended. Raises Failed if the response is not an SSE
    stream with status 200 and at least one chunk."""
    async with target.stream(body, **options) as stream:
        exchange = stream.exchange
        check(exchange.status == 200, "a stream with status 200", exchange.status, exchange)
        check(exchange.is_stream, "Content-Type text/event-stream", exchange.media_type, exchange)
        await stream.rest_of_it()
        chunks = [frame.json_or_none for frame in exchange.frames if frame.data != DONE]
        check(bool(chunks), "a chunk", None, exchange)
        return ChatAnswer(exchange, chunks, exchange.is_ended and not stream.rest, body)


async def answer_plainly(ctx: Ctx) -> ChatAnswer:
    target, text = agent_for(ctx, "plain")
    return await post(target, request(user(text)))


async def answer_again(ctx: Ctx) -> ChatAnswer:
    """Post the text of `answer_plainly` in another chat, and return the response."""
    target, text = agent_for(ctx, "plain")
    return await post(target, request(user(text)))


async def answer_with_tool(ctx: Ctx) -> ChatAnswer:
    """Post the trigger for the use of the agent's own tools, and return the response."""
    target, text = agent_for(ctx, "tools")
    answer = await post(target, request(user(text)))
    check_shown(bool(answer.all("tool-input-available", "tool-input-start")), "tools", "used no tool")
    return answer


async def answer_with_call(ctx: Ctx) -> ChatAnswer:
    """Post the trigger for a call of a page's tool, with `TOOL` declared, and return the response."""
    target, text = agent_for(ctx, "calls")
    answer = await post(target, request(user(text), tools={"get_weather": TOOL}))
    check_shown(bool(open_calls(answer)), "calls", "called no tool of the page")
    return answer


async def call_with_result(ctx: Ctx) -> ChatAnswer:
    """Post the assistant message of `answer_with_call` with a result for each of its calls, and return the response."""
    called = await ctx.once(answer_with_call)
    target, _ = agent_for(ctx, "calls")
    ended = [{"state": "output-available", "output": "21 °C"} for _ in open_calls(called)]
    return await _complete(target, called, ended)


async def ask_for_approval(ctx: Ctx) -> ChatAnswer:
    """Post the trigger for a request for approval, and return the response."""
    target, text = agent_for(ctx, "approval")
    answer = await post(target, request(user(text)))
    check_shown(bool(answer.all("tool-approval-request")), "approval", "requested no approval")
    return answer


async def decide(ctx: Ctx, approved: bool) -> ChatAnswer:
    """Post the trigger for a request for approval, and then the same decision on each requested approval. Return the
    second response."""
    first = await ask_for_approval(ctx)
    target, _ = agent_for(ctx, "approval")
    approvals = {dig(each, "toolCallId"): dig(each, "approvalId") for each in first.all("tool-approval-request")}
    ended = [
        {
            "state": "approval-responded",
            "approval": {"id": approvals.get(dig(call, "toolCallId"), new_id()), "approved": approved},
        }
        for call in open_calls(first)
    ]
    return await _complete(target, first, ended)


def open_calls(answer: ChatAnswer) -> list[Any]:
    """Return the chunks of the tool calls that the page has to complete: not executed by the server, and without a
    result in the response."""
    ended = {dig(each, "toolCallId") for each in answer.all("tool-output-available", "tool-output-error")}
    calls = answer.all("tool-input-available")
    return [
        call for call in calls if dig(call, "providerExecuted") is not True and dig(call, "toolCallId") not in ended
    ]


async def _complete(target: ChatTarget, first: ChatAnswer, ended: Sequence[Mapping[str, Any]]) -> ChatAnswer:
    """Post the assistant message of the response `first`, and return the new response. `ended` has the members to add
    to each open call, such as its state and output."""
    parts: list[dict[str, Any]] = [{"type": "step-start"}]
    for call, members in zip(open_calls(first), ended, strict=True):
        name = dig(call, "toolName")
        kind = {"type": "dynamic-tool", "toolName": name} if dig(call, "dynamic") else {"type": f"tool-{name}"}
        members = {"toolCallId": dig(call, "toolCallId"), "input": dig(call, "input"), **members}
        parts.append({**kind, **members})
    message_id = first.message_id if isinstance(first.message_id, str) else new_id()
    message = {"id": message_id, "role": "assistant", "parts": parts}
    messages = [*as_list(first.body["messages"]), message]
    body = {**first.body, "messages": messages, "messageId": message_id}
    return await post(target, body)


async def fail(ctx: Ctx) -> ChatAnswer:
    """Post the trigger for a failure of the agent, and return the response, which may be an HTTP error."""
    await ctx.once(answer_plainly)
    target, text = agent_for(ctx, "fail")
    async with target.stream(request(user(text))) as stream:
        exchange = stream.exchange
        await stream.rest_of_it()
        chunks = [frame.json_or_none for frame in exchange.frames if frame.data != DONE]
    return ChatAnswer(exchange, chunks, exchange.is_ended, as_object(exchange.request_json) or {})
