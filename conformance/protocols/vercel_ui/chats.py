"""Probes of valid requests that a server must answer, for example with a history or with data parts."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.vercel_ui.scenes import ChatAnswer, answer_plainly, post
from babelgate.conformance.protocols.vercel_ui.target import ChatTarget, Ctx, agent_for, new_id, request, user
from babelgate.conformance.verdict import check

probes: Final = Probes[ChatTarget]()


def _check_answered(answer: ChatAnswer) -> None:
    check(answer.reason is not None, "an answer that finishes", answer.chunks[-1], answer.exchange)


async def _accept(ctx: Ctx, *messages: dict[str, Any], **members: Any) -> None:
    """Post these messages in a new chat, with `members` added to the request. Raises Failed unless the response
    finishes."""
    await ctx.once(answer_plainly)
    target, _ = agent_for(ctx, "plain")
    _check_answered(await post(target, request(*messages, **members)))


def _assistant(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": new_id(), "role": "assistant", "parts": [{"type": "step-start"}, *parts]}


@probes.add
async def history_is_accepted(ctx: Ctx) -> None:
    _, text = agent_for(ctx, "plain")
    await _accept(ctx, user("One"), _assistant({"type": "text", "text": "Two", "state": "done"}), user(text))


@probes.add
async def data_parts_are_accepted(ctx: Ctx) -> None:
    _, text = agent_for(ctx, "plain")
    answer = _assistant({"type": "data-note", "id": "1", "data": {"a": 1}}, {"type": "text", "text": "Two"})
    await _accept(ctx, user("One"), answer, user(text))


@probes.add
async def several_parts_are_accepted(ctx: Ctx) -> None:
    _, text = agent_for(ctx, "plain")
    message = user(text)
    message["parts"].append({"type": "text", "text": " Thanks."})
    await _accept(ctx, message)


@probes.add
async def metadata_is_accepted(ctx: Ctx) -> None:
    _, text = agent_for(ctx, "plain")
    await _accept(ctx, user(text, metadata={"createdAt": 1}))


@probes.add
async def members_of_the_app_are_accepted(ctx: Ctx) -> None:
    _, text = agent_for(ctx, "plain")
    await _accept(ctx, user(text), model="fast", options={"a": [1]})


@probes.add
async def answer_can_be_regenerated(ctx: Ctx) -> None:
    answer = await ctx.once(answer_plainly)
    target, _ = agent_for(ctx, "plain")
    message_id = answer.message_id if isinstance(answer.message_id, str) else new_id()
    body = {**answer.body, "trigger": "regenerate-message", "messageId": message_id}
    again = await post(target, body)
    _check_answered(again)
    check(bool(again.text), "another answer with text", again.text, again.exchange)


@probes.add
async def text_beyond_ascii_is_accepted(ctx: Ctx) -> None:
    await _accept(ctx, user("Grüße, 世界 🌍\u2028\r\n"))


@probes.add
async def body_is_read_whatever_its_type(ctx: Ctx) -> None:
    await ctx.once(answer_plainly)
    target, text = agent_for(ctx, "plain")
    _check_answered(await post(target, request(user(text)), headers={"Content-Type": "text/plain;charset=UTF-8"}))
