"""Probes that test the questions of MCP tools: a result that requires input, and the call that is repeated with the
input."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.mcp.scenes import call_of
from babelgate.conformance.protocols.mcp.target import Ctx, McpReply, McpTarget
from babelgate.conformance.verdict import NotApplicable, check, check_shown
from babelgate.conformance.wire.exchange import as_list, as_object, dig

probes: Final = Probes[McpTarget]()

_FORMS: Final[Mapping[str, Any]] = {"elicitation": {"form": {}}}
_PLAIN: Final = ("string", "number", "integer", "boolean", "array")


@dataclass(frozen=True, slots=True)
class QuestionCall:
    params: dict[str, Any]
    reply: McpReply

    @property
    def requests(self) -> dict[str, Any]:
        return as_object(dig(self.reply.result, "inputRequests")) or {}

    @property
    def repeated_params(self) -> dict[str, Any]:
        """Parameters of the call that repeats this one, with its `requestState` and without the answers."""
        state = dig(self.reply.result, "requestState")
        return self.params if state is None else {**self.params, "requestState": state}


@probes.add
async def question_is_a_result(ctx: Ctx) -> None:
    await ctx.subject(ask_question)


@probes.add
async def question_is_a_form(ctx: Ctx) -> None:
    found = await ctx.once(ask_question)
    for each in found.requests.values():
        check(dig(each, "method") == "elicitation/create", "only what the client supports", each, found.reply.exchange)
        fields = as_object(dig(each, "params", "requestedSchema", "properties")) or {}
        is_flat = bool(fields) and all(dig(field, "type") in _PLAIN for field in fields.values())
        check(is_flat, "a requestedSchema of plain members", each, found.reply.exchange)
        words = dig(each, "params", "message")
        check(isinstance(words, str) and bool(words), "a message", each, found.reply.exchange)


@probes.add
async def answered_call_is_done(ctx: Ctx) -> None:
    found = await ctx.once(ask_question)
    reply = await _answer(ctx, found)
    kind = dig(reply.result, "resultType")
    check(kind == "complete" and dig(reply.result, "isError") is not True, "a result", reply.response, reply.exchange)


@probes.add
async def call_without_the_answer_is_asked_again(ctx: Ctx) -> None:
    await ctx.once(ask_question)
    found = await _ask(ctx)
    reply = await ctx.target.ask("tools/call", {**found.repeated_params, "inputResponses": {}}, capabilities=_FORMS)
    kind = dig(reply.result, "resultType")
    check(kind == "input_required", "the resultType input_required", reply.response, reply.exchange)


@probes.add
async def client_without_forms_is_asked_by_none(ctx: Ctx) -> None:
    await ctx.once(ask_question)
    _, params = await call_of(ctx, "question")
    reply = await ctx.target.ask("tools/call", params)
    methods = [dig(each, "method") for each in (as_object(dig(reply.result, "inputRequests")) or {}).values()]
    check("elicitation/create" not in methods, "no form", reply.response, reply.exchange)
    is_answered = reply.result is not None or reply.code == -32021
    check(is_answered, "a result, or the code -32021", reply.response, reply.exchange)


@probes.add
async def changed_state_is_refused(ctx: Ctx) -> None:
    found = await ctx.once(_with_state)
    state = str(found.repeated_params["requestState"])
    changed = state[:-4] + ("aaaa" if state[-4:] != "aaaa" else "bbbb")
    _check_refused(await _answer(ctx, found, state=changed))


@probes.add
async def state_of_another_caller_is_refused(ctx: Ctx) -> None:
    found = await ctx.once(_with_state)
    other = dict(ctx.options.other_headers)
    reply = await _answer(ctx, found, headers=other, is_anonymous=True)
    _check_refused(reply)


def _check_refused(reply: McpReply) -> None:
    is_refused = reply.error is not None or dig(reply.result, "isError") is True
    check(is_refused, "an error", reply.response, reply.exchange)


async def ask_question(ctx: Ctx) -> QuestionCall:
    found = await _ask(ctx)
    result = found.reply.result
    kind = dig(result, "resultType")
    has_requests = bool(found.requests) or dig(result, "requestState") is not None
    check_shown(kind != "complete" or has_requests, "question", "returned a result")
    check(kind == "input_required", "the resultType input_required", found.reply.response, found.reply.exchange)
    has_either = bool(found.requests) or isinstance(dig(result, "requestState"), str)
    check(has_either, "inputRequests or a requestState", result, found.reply.exchange)
    return found


async def _ask(ctx: Ctx) -> QuestionCall:
    _, params = await call_of(ctx, "question")
    return QuestionCall(params, await ctx.target.ask("tools/call", params, capabilities=_FORMS))


async def _with_state(ctx: Ctx) -> QuestionCall:
    await ctx.once(ask_question)
    found = await _ask(ctx)
    if "requestState" not in found.repeated_params:
        raise NotApplicable("the server keeps no state with its client")
    return found


async def _answer(ctx: Ctx, found: QuestionCall, *, state: str = "", **options: Any) -> McpReply:
    responses = {
        name: {"action": "accept", "content": _content(ctx, dig(each, "params", "requestedSchema"))}
        for name, each in found.requests.items()
    }
    changed = {"requestState": state} if state else {}
    params = {**found.repeated_params, **changed, "inputResponses": responses}
    return await ctx.target.ask("tools/call", params, capabilities=_FORMS, **options)


def _content(ctx: Ctx, schema: Any) -> dict[str, Any]:
    """Return an answer to a form: a value for each property of its schema. Texts have the answer of the trigger."""
    answer = ctx.triggers["question"].answer
    content: dict[str, Any] = {}
    for name, field in (as_object(dig(schema, "properties")) or {}).items():
        choices = as_list(dig(field, "enum"))
        match dig(field, "type"):
            case _ if choices:
                content[name] = choices[0]
            case "boolean":
                content[name] = True
            case "number" | "integer":
                content[name] = 1
            case "array":
                content[name] = []
            case _:
                content[name] = str(answer)
    return content
