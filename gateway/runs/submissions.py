"""Commands of callers about runs: submit an input, answer a question, and cancel.

Each is checked, committed to the journal, and then passed to the engine. A committed run starts even if its caller
disconnects.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import Answers, Receipt, StateUpdate, Submission
from babelgate.canonical.message import Message
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.thread import Run, Task
from babelgate.gateway.ids import new_id
from babelgate.gateway.observe import GatewayTraces
from babelgate.gateway.outbound import CheckUrl
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.runs import submission as command
from babelgate.gateway.runs.answer_schema import fit_answers
from babelgate.gateway.runs.budgets import Budgets, RunAccount, trace_id_of
from babelgate.gateway.runs.chains import Chains
from babelgate.gateway.runs.engine import Engine
from babelgate.gateway.runs.forks import Base, find_base
from babelgate.gateway.runs.rates import RateLimiter, RunCaller
from babelgate.gateway.runs.submission import Cancelled, Ids, Submitted
from babelgate.gateway.runs.threads import ThreadCommands
from babelgate.gateway.runs.uploads import keep_messages
from babelgate.gateway.runs.webhooks import Deliverer
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.reads import JournalReads
from babelgate.gateway.storage.size import check_size

_MAX_DELAY: Final = 2**62
"""Maximum delay of a start, in microseconds. Chosen: the sum of now and this delay fits a 64-bit column of the
database."""


LIMITED: Final[Mapping[str, str]] = {"messages": "input", "config": "input", "data": "data", "metadata": "metadata"}
"""Fields of a `RunInput` whose size is limited, each with the group of fields that are measured together."""
UNLIMITED: Final[Mapping[str, str]] = {
    "uploaded": "a number",
    "checkpoint": "an id that is looked up",
    "headers": "limited by the server",
    "trace": "set by the hub",
    "assistant": "a name that was looked up",
    "extra": "members of the request, whose body is limited",
}
"""Fields of a `RunInput` whose size needs no limit, each with the reason."""


def check_input(limits: Limits, run_input: RunInput, *, history: Sequence[Message] = (), values: object = None) -> None:
    """Check the sizes of a run's whole input, and of the values that arrive with it. Raises too_large if one of them
    exceeds `limits.input` or `limits.metadata`.

    `history` are earlier messages, and `values` are answers. Data and answers are measured apart from messages, because
    most protocols repeat the messages in them.
    """
    groups: dict[str, list[object]] = {"input": [history], "data": [], "metadata": []}
    for name, group in LIMITED.items():
        groups[group].append(getattr(run_input, name))
    check_size(limits.input, *groups["input"])
    check_size(limits.input, *groups["data"])
    check_size(limits.input, values)
    check_size(limits.metadata, *groups["metadata"])


class Submissions:
    """Commands of callers that start or stop runs."""

    def __init__(
        self,
        journal: Journal,
        reads: JournalReads,
        blobs: Blobs,
        find_agent: Callable[[str], RegisteredAgent],
        reach_agent: Callable[[str], Awaitable[RegisteredAgent]],
        engine: Engine,
        threads: ThreadCommands,
        deliverer: Deliverer,
        check_url: CheckUrl,
        limits: Callable[[], Limits],
        check_accepting: Callable[[], None],
        check_enabled: Callable[[str], None],
        rates: RateLimiter,
        budgets: Budgets,
        chains: Chains,
        traces: GatewayTraces | None = None,
    ) -> None:
        """Create the commands.

        `find_agent` and `reach_agent` return an agent and raise not_found; the second one reconnects to a broken agent
        first. `check_url` raises invalid for a webhook's URL that may not be called. `limits` returns the current
        limits. `check_accepting` raises shutting_down once the gateway drains. `check_enabled` raises unavailable for
        the name of an agent that is disabled.

        `rates` limits how many runs may start within a period, and `budgets` their cost. `chains` limits how deep
        agents call each other.
        """
        self._journal = journal
        self._reads = reads
        self._blobs = blobs
        self._find = find_agent
        self._reach = reach_agent
        self._engine = engine
        self._threads = threads
        self._deliverer = deliverer
        self._check_url = check_url
        self._limits = limits
        self._check_accepting = check_accepting
        self._check_enabled = check_enabled
        self._rates = rates
        self._budgets = budgets
        self._chains = chains
        self._traces = traces

    async def submit(self, owner: str, submission: Submission) -> Receipt:
        """Commit a new run and start it when its turn comes (`babelgate.canonical.hub.Hub.submit`). Raises the faults
        of that method, shutting_down, and unavailable if the agent is disabled or the database cannot be written."""
        self._check_accepting()
        limits = self._limits()
        check_input(limits, submission.input, history=submission.history)
        check_size(limits.metadata, submission.thread_metadata)
        agent = self._find(submission.agent).info.name
        self._check_enabled(agent)
        if not self._rates.is_active or await self._is_repeat(owner, submission):
            return await self._submit(owner, submission)
        charge = await self._rates.take(RunCaller(submission.subject or f"owner:{owner}", owner), agent)
        try:
            return await self._submit(owner, submission)
        except FaultError:
            await self._rates.give_back(charge)
            raise

    async def _is_repeat(self, owner: str, submission: Submission) -> bool:
        """Return True if a task or run with the id that the caller has chosen exists already, so that the submission
        will create none."""
        task_id, run_id = submission.task_id, submission.run_id
        if task_id is not None and await self._journal.row(Task, owner, task_id) is not None:
            return True
        return run_id is not None and await self._journal.row(Run, owner, run_id) is not None

    async def _submit(self, owner: str, submission: Submission) -> Receipt:
        limits = self._limits()
        registered = await self._reach(submission.agent)
        if registered.agent is None:
            raise registered.refuse()
        info, agent = registered.info, registered.info.name
        if submission.start_in is not None and not 0 <= submission.start_in <= _MAX_DELAY:
            raise FaultError(FaultCode.INVALID, "The delay before the start is negative or too long")
        if submission.webhook is not None:
            await self._check_url(submission.webhook.url)
        check_size(limits.input, submission.state)
        if submission.input.checkpoint is not None:
            await self._reads.need_revision(owner, submission.thread_id, submission.input.checkpoint)
        run_input = await self._store_input(registered, submission.input)
        if self._chains.max_runs is not None and submission.strategy == "enqueue":
            self._check_circle(owner, submission.thread_id, trace_id_of(run_input.trace))
        submission, base = await find_base(self._reads, owner, replace(submission, agent=agent, input=run_input))
        if submission.history:
            submission = replace(submission, history=await keep_messages(self._blobs, submission.history))
        if submission.state and submission.follow_up is not None:
            raise FaultError(FaultCode.INVALID, "The state cannot be changed while the task is running.")
        if submission.state and info.stateful:
            return await self._submit_with_state(owner, submission, base)
        is_fork = base is not None or bool(submission.state)
        ids = _fork_ids() if is_fork else _ids()
        is_reserved = self._engine.slots.reserve(agent, owner)
        commit = self._journal.write(
            command.submit,
            owner,
            submission,
            ids,
            limits,
            may_start=is_reserved,
            stateful=info.stateful,
            base=base,
            account=self._open_account(owner, submission.subject, agent, run_input),
        )
        return await self._await_dispatch(owner, agent, submission, is_reserved, commit)

    def _check_circle(self, owner: str, thread_id: str | None, trace_id: str) -> None:
        """Check that the new run would not wait for its own caller. Raises limited if it would.

        This happens if an agent's call comes back to the thread on which the agent is running, as ACP passes the
        session on to agents' servers. Both runs then have the same trace id.
        """
        for start in self._engine.active if thread_id is not None and trace_id else ():
            created = start.created
            is_on_thread = (start.owner, start.thread_id) == (owner, thread_id)
            if is_on_thread and created is not None and trace_id_of(created.trace) == trace_id:
                raise self._chains.refuse_circle()

    async def _submit_with_state(self, owner: str, submission: Submission, base: Base | None) -> Receipt:
        """Let an agent that keeps its own state change this state as the submission requests, and then submit the rest
        of the submission on the same thread. `base` is the state of another thread to start from; None if the
        submission is no fork."""
        alias = submission.alias or ""
        thread_id = submission.thread_id or await self._reads.thread_of(
            owner, submission.protocol, submission.agent, alias
        )
        is_new = thread_id is None or not await self._has_thread(owner, thread_id)
        prepared = replace(submission, thread_id=thread_id)
        if is_new or base is not None:
            prepared = await self._journal.write(command.prepare, owner, submission, _fork_ids(), base)
        thread_id = prepared.thread_id
        assert thread_id is not None
        update = StateUpdate(
            thread_id=thread_id,
            values=prepared.state,
            checkpoint=prepared.input.checkpoint,
            as_node=prepared.as_node,
            agent=prepared.agent,
        )
        try:
            checkpoint = await self._threads.update_state(owner, update)
            run_input = prepared.input
            if run_input.checkpoint is not None:
                run_input = run_input.replace(checkpoint=checkpoint)
            return await self._submit(owner, replace(prepared, input=run_input, fork=None, state={}))
        except BaseException:
            if is_new:
                await self._threads.delete(owner, thread_id)
                await self._journal.write(command.forget, owner, thread_id)
            raise

    async def _has_thread(self, owner: str, thread_id: str) -> bool:
        try:
            await self._reads.thread(owner, thread_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            return False
        return True

    async def answer(self, owner: str, answers: Answers) -> Receipt:
        """Commit answers and continue the task (`babelgate.canonical.hub.Hub.answer`). Raises the faults of that
        method, shutting_down, and unavailable if the agent is disabled or the database cannot be written."""
        self._check_accepting()
        limits = self._limits()
        check_input(limits, answers.input, values=[answers.values, answers.bare])
        task = await self._reads.task(owner, answers.task_id)
        self._check_enabled(task.agent)
        charge = await self._rates.take(RunCaller(answers.subject or f"owner:{owner}", owner), task.agent)
        try:
            return await self._answer(owner, answers, task)
        except FaultError:
            await self._rates.give_back(charge)
            raise

    async def resume(self, owner: str, answers: Answers) -> Receipt:
        """Answer a question in the name of the gateway itself, without the rate limits of callers. Raises the faults of
        `answer`."""
        return await self._answer(owner, answers, await self._reads.task(owner, answers.task_id))

    async def _answer(self, owner: str, answers: Answers, task: Task) -> Receipt:
        limits = self._limits()
        answers = await fit_answers(await self._reads.open_interrupts(owner, answers.task_id), answers)
        if answers.webhook is not None:
            await self._check_url(answers.webhook.url)
        run_input = await self._store_input(self._find_agent(task.agent), answers.input)
        answers = replace(answers, input=run_input)
        is_reserved = self._engine.slots.reserve(task.agent, owner)
        account = self._open_account(owner, answers.subject, task.agent, run_input)
        commit = self._journal.write(
            command.answer, owner, answers, _ids(), limits, may_start=is_reserved, account=account
        )
        return await self._await_dispatch(owner, task.agent, answers, is_reserved, commit)

    def _open_account(self, owner: str, subject: str, agent: str, run_input: RunInput) -> RunAccount | None:
        """Return the account with the budgets that count a run, or None if none does."""
        max_runs = self._chains.max_runs
        if max_runs is None and not self._budgets.can_count(agent):
            return None
        caller = RunCaller(subject, owner)
        return self._budgets.open_account(caller, agent, trace_id_of(run_input.trace), max_runs)

    async def check_answers(self, owner: str, answers: Answers) -> None:
        """Check answers against the schemas of their questions, and commit nothing
        (`babelgate.canonical.hub.Hub.check_answers`)."""
        await self._reads.task(owner, answers.task_id)
        await fit_answers(await self._reads.open_interrupts(owner, answers.task_id), answers)

    def _find_agent(self, name: str) -> RegisteredAgent | None:
        """Return an agent, or None if the configuration no longer has it."""
        try:
            return self._find(name)
        except FaultError:
            return None

    async def _store_input(self, registered: RegisteredAgent | None, run_input: RunInput) -> RunInput:
        """Return the input as the log stores it: with references to files in the blob store, only the headers that the
        agent may get, and the current trace.

        An agent that is not registered (None) gets no headers. Raises limited if the chain of calls is too deep.
        """
        headers = _forwarded_headers(registered, run_input.headers)
        trace: Mapping[str, str] = {} if self._traces is None else self._traces.read_context()
        trace = self._chains.enter(trace)
        messages = await keep_messages(self._blobs, run_input.messages)
        return run_input.replace(headers=headers, trace=trace, messages=messages)

    async def _await_dispatch(
        self,
        owner: str,
        agent: str,
        command: Submission | Answers,
        is_reserved: bool,
        commit: "asyncio.Future[Submitted]",
    ) -> Receipt:
        """Wait for a commit and return its receipt. The committed run starts even if the caller disconnects.

        `command` is the submission or answer that is committed. `is_reserved` is True if a slot of the agent is
        reserved for the run.
        """
        commit.add_done_callback(partial(self._dispatch, owner, agent, command, is_reserved))
        return (await asyncio.shield(commit)).receipt

    def _dispatch(
        self,
        owner: str,
        agent: str,
        command: Submission | Answers,
        is_reserved: bool,
        commit: "asyncio.Future[Submitted]",
    ) -> None:
        submitted, webhook = None if commit.exception() is not None else commit.result(), command.webhook
        if submitted is not None and command.caller is not None:
            self._engine.callers.keep(submitted.pk, submitted.receipt.run_id, command.caller)
        if submitted is not None and webhook is not None:
            self._deliverer.start_delivery(owner, replace(webhook, task_id=submitted.receipt.task_id))
        if submitted is not None and submitted.stop is not None:
            self._engine.stop_run(*submitted.stop)
        if submitted is not None and submitted.start is not None:
            self._engine.begin(submitted.start)
            return
        if is_reserved:
            self._engine.slots.release(agent, owner)
        if submitted is not None and submitted.idle:
            self._engine.slots.offer(owner, submitted.receipt.thread_id, agent)

    async def cancel(self, owner: str, task_id: str) -> Task:
        """Cancel a task and stop its running run (`babelgate.canonical.hub.Hub.cancel`)."""
        commit = self._journal.write(command.cancel, owner, task_id)
        commit.add_done_callback(self._stop_run)
        return (await asyncio.shield(commit)).task

    async def cancel_run(self, owner: str, run_id: str, *, rollback: bool) -> Run:
        """Cancel the task of a run, and return the run (`babelgate.canonical.hub.Hub.cancel_run`)."""
        commit = self._journal.write(command.cancel_run, owner, run_id, rollback=rollback)
        commit.add_done_callback(self._stop_run)
        await asyncio.shield(commit)
        return await self._reads.run(owner, run_id)

    def _stop_run(self, commit: "asyncio.Future[Cancelled]") -> None:
        if commit.exception() is None and (stop := commit.result().stop) is not None:
            self._engine.stop_run(*stop)


def _forwarded_headers(registered: RegisteredAgent | None, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return those headers of the caller's request that the agent's settings pass on to its server. An agent that is
    not registered (None) gets none."""
    if not headers or registered is None:
        return {}
    return {name: value for name, value in headers.items() if name in registered.forward}


def _ids() -> Ids:
    return Ids(new_id(), new_id(), new_id(), new_id())


def _fork_ids() -> Ids:
    """Return unused ids for a submission, including those of the revisions that a fork or a state change creates."""
    return Ids(new_id(), new_id(), new_id(), new_id(), base=new_id(), state=new_id())
