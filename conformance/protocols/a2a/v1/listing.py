"""Probes that test ListTasks of A2A."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.binding import A2aReply, Binding, state_of
from babelgate.conformance.protocols.a2a.probes.owner import other
from babelgate.conformance.protocols.a2a.scenes import context_of, each_binding, plain_task
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[A2aTarget]()
_NUMBER: Final = 3


@dataclass(frozen=True, slots=True)
class Shelf:
    """Context in which the check has created several tasks, the oldest first in `tasks`. It has no other tasks, so
    lists of it are predictable."""

    binding: Binding
    context: str
    tasks: list[Any]

    @property
    def ids(self) -> list[str]:
        return [str(dig(each, "id")) for each in self.tasks]

    async def list(self, **params: Any) -> A2aReply:
        reply = await self.binding.call("ListTasks", {"contextId": self.context, **params})
        check(not reply.reason, "ListTasks succeeds", reply.reason, reply.exchange)
        return reply


async def shelf(ctx: Ctx, binding: str) -> Shelf:
    await ctx.once(plain_task, binding)
    agent = await agent_for(ctx, "plain")
    tasks: list[Any] = []
    # The agent chooses the context, because it may refuse one of the caller's.
    start = await agent[binding].call("SendMessage", {"message": message(ctx.triggers["plain"].text)})
    context = context_of(start)
    tasks.append(start.task)
    for _ in range(_NUMBER - 1):
        sent = await agent[binding].call(
            "SendMessage", {"message": message(ctx.triggers["plain"].text, contextId=context)}
        )
        check(sent.task is not None, "a task in the context", sent.reason_or_result, sent.exchange)
        tasks.append(sent.task)
    return Shelf(agent[binding], context, tasks)


def ids_of(reply: A2aReply) -> list[str]:
    return [str(dig(each, "id")) for each in as_list(dig(reply.result, "tasks"))]


@probes.add
@each_binding
async def list_has_the_tasks(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    reply = await full_shelf.list()
    found = [id for id in ids_of(reply) if id in full_shelf.ids]
    check(
        sorted(found) == sorted(full_shelf.ids), f"the tasks {full_shelf.ids}, each once", ids_of(reply), reply.exchange
    )


@probes.add
@each_binding
async def list_is_of_the_context(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    reply = await full_shelf.list()
    contexts = {str(dig(each, "contextId")) for each in as_list(dig(reply.result, "tasks"))}
    check(
        contexts <= {full_shelf.context},
        f"only tasks of the context {full_shelf.context}",
        sorted(contexts),
        reply.exchange,
    )


@probes.add
@each_binding
async def list_of_an_unknown_context_is_empty(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    reply = await full_shelf.list(contextId=str(uuid4()))
    check(ids_of(reply) == [], "no task", ids_of(reply), reply.exchange)


@probes.add
@each_binding
async def list_is_of_the_state(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    state = state_of(dig((await full_shelf.list()).result, "tasks", 0))
    reply = await full_shelf.list(status=state)
    check(sorted(ids_of(reply)) == sorted(full_shelf.ids), f"the tasks that are {state}", ids_of(reply), reply.exchange)
    none = await full_shelf.list(status="TASK_STATE_REJECTED" if "REJECTED" not in state else "TASK_STATE_FAILED")
    check(ids_of(none) == [], "no task of another state", ids_of(none), none.exchange)


@probes.add
@each_binding
async def newest_tasks_come_first(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    reply = await full_shelf.list()
    times = [str(dig(each, "status", "timestamp")) for each in as_list(dig(reply.result, "tasks"))]
    if "None" in times:
        raise NotObserved("the tasks have no timestamps to order them by")
    check(times == sorted(times, reverse=True), "descending timestamps of the status", times, reply.exchange)


@probes.add
@each_binding
async def page_size_is_kept(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    reply = await full_shelf.list(pageSize=2)
    check(len(ids_of(reply)) <= 2, "at most two tasks", ids_of(reply), reply.exchange)
    check(dig(reply.result, "pageSize") == 2, "pageSize 2 in the answer", dig(reply.result, "pageSize"), reply.exchange)


@probes.add
@each_binding
async def pages_give_each_task_once(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    ids: list[str] = []
    token = ""
    for _ in range(_NUMBER + 2):
        reply = await full_shelf.list(pageSize=1, **({"pageToken": token} if token else {}))
        ids += ids_of(reply)
        token = str(dig(reply.result, "nextPageToken") or "")
        if not token:
            break
    check(sorted(ids) == sorted(full_shelf.ids), f"each of {full_shelf.ids} once", ids)


@probes.add
@each_binding
async def last_page_says_so(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    reply = await full_shelf.list(pageSize=100)
    token = dig(reply.result, "nextPageToken")
    check(token == "", "an empty nextPageToken", token, reply.exchange)


@probes.add
@each_binding
async def total_is_of_all_pages(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    reply = await full_shelf.list(pageSize=1)
    total = dig(reply.result, "totalSize")
    check(total == _NUMBER, f"totalSize {_NUMBER}", total, reply.exchange)


@probes.add
@each_binding
async def page_size_out_of_bounds_is_refused(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    for size in (0, 101, -1):
        params = {"contextId": full_shelf.context, "pageSize": size}
        bad_request(await full_shelf.binding.call("ListTasks", params, is_valid=False))


@probes.add
@each_binding
async def unknown_page_token_is_refused(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    bad_request(await full_shelf.binding.call("ListTasks", {"pageToken": "no token of yours"}))


def bad_request(reply: A2aReply) -> None:
    """Check that the reply is the error of invalid parameters. By REST and gRPC this error has the status 400 or
    INVALID_ARGUMENT, and no reason. Raises Failed for any other reply."""
    exchange = reply.exchange
    is_status = exchange.rpc_status == "INVALID_ARGUMENT" if exchange.rpc_status else exchange.status == 400
    is_right = reply.reason == "INVALID_PARAMS" or (bool(reply.reason) and is_status)
    check(is_right, "the invalid-parameters error", reply.reason_or_result, reply.exchange)


@probes.add
@each_binding
async def unknown_state_is_refused(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    params = {"contextId": full_shelf.context, "status": "TASK_STATE_DAYDREAMING"}
    bad_request(await full_shelf.binding.call("ListTasks", params, is_valid=False))


@probes.add
@each_binding
async def artifacts_are_left_out(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    reply = await full_shelf.list()
    for each in as_list(dig(reply.result, "tasks")):
        check("artifacts" not in each, "tasks without the member artifacts", each, reply.exchange)


@probes.add
@each_binding
async def artifacts_are_included_if_wanted(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    if not as_list(dig(full_shelf.tasks[0], "artifacts")):
        raise NotObserved("the agent produced no artifact", "plain")
    reply = await full_shelf.list(includeArtifacts=True)
    for each in as_list(dig(reply.result, "tasks")):
        check(bool(as_list(dig(each, "artifacts"))), "tasks with their artifacts", each, reply.exchange)


@probes.add
@each_binding
async def history_is_limited_in_lists(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    reply = await full_shelf.list(historyLength=0)
    for each in as_list(dig(reply.result, "tasks")):
        check(not as_list(dig(each, "history")), "tasks without history", each, reply.exchange)


@probes.add
@each_binding
async def list_is_of_the_time_since(ctx: Ctx, binding: str) -> None:
    full_shelf = await ctx.once(shelf, binding)
    late = await full_shelf.list(statusTimestampAfter="2999-01-01T00:00:00Z")
    check(ids_of(late) == [], "no task of the future", ids_of(late), late.exchange)
    early = await full_shelf.list(statusTimestampAfter="2001-01-01T00:00:00Z")
    check(sorted(ids_of(early)) == sorted(full_shelf.ids), f"the tasks {full_shelf.ids}", ids_of(early), early.exchange)


@probes.add
@each_binding
async def anothers_tasks_are_not_listed(ctx: Ctx, binding: str) -> None:
    headers = other(ctx)
    full_shelf = await ctx.once(shelf, binding)
    reply = await full_shelf.binding.call("ListTasks", {"contextId": full_shelf.context}, headers=headers)
    if not reply.reason:
        check(ids_of(reply) == [], "no task of another caller", ids_of(reply), reply.exchange)


@probes.add
@each_binding
async def lists_without_a_filter_are_ones_own(ctx: Ctx, binding: str) -> None:
    headers = other(ctx)
    full_shelf = await ctx.once(shelf, binding)
    reply = await full_shelf.binding.call("ListTasks", {"pageSize": 100}, headers=headers)
    found = set(ids_of(reply)) & set(full_shelf.ids)
    check(not found, "no task of another caller", sorted(found), reply.exchange)
