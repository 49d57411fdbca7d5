"""Gate: the checks of the calls to one part of the hub's port.

A rule may apply to some agents only. What it means for a call depends on what the call concerns:

- An agent, a task or a run: the operation must be allowed for its agent.
- A whole thread, such as its log, its state or its metadata: the operation must be allowed for every agent that has
  run on it.
- A list: it contains only what the caller may read, and its totals and pages count nothing else.
- A file: one of the threads that name it must be readable.
- Anything else, such as an item of the store or a thread without runs: the operation must be allowed for some agent.

An agent that the caller cannot discover looks as if it did not exist. So do its tasks, runs and threads, if the caller
may not use them.

A thread that another owner shares with the caller is found by its id, and by the ids of its tasks and runs. If the
caller's owner has a thread, task or run with the same id, that one is used. The rules apply to shared threads, too.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, NoReturn, TypeVar

from babelgate.canonical.event import Record, TaskCreated
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.grant import GrantLevel, grantees_of
from babelgate.canonical.hub import Scope
from babelgate.canonical.principal import Operation, Principal
from babelgate.canonical.thread import Run, Task
from babelgate.gateway.access.operations import Operations, Part
from babelgate.gateway.access.policy import Policy
from babelgate.gateway.access.rules import name_of
from babelgate.gateway.agents.registry import unknown_agent
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage.grants import Kind

T = TypeVar("T")
LogRead = Callable[[str], AsyncGenerator[Sequence[Record]]]
"""Function that reads the log of an owner's thread."""


_LEVELS: Final[Mapping[Operation, GrantLevel]] = {"read": "read", "run": "write", "answer": "write", "cancel": "write"}
"""Level of a grant that an operation on a shared thread needs, by operation. Only the owner of the thread may do all
other operations."""
_UPLOAD: Final = "upload"
"""Name of the method that uploads a file to a thread. Its operation is `write`, which only the owner may do. But a
grant of the level `write` suffices, because the file is an input of the next run."""


class Gate:
    """Checks of the calls that one protocol makes to one part of the hub's port, such as `reads`."""

    def __init__(self, part: Part, hub: GatewayHub, policy: Policy, protocol: str, operations: Operations) -> None:
        self._part = part
        self._hub = hub
        self._policy = policy
        self._protocol = protocol
        self._operations = operations.get(part, {})

    def check(self, principal: Principal, method: str, agent: str = "") -> None:
        """Check a call to a method, and report its refusal for the audit log. Raises forbidden if the policy does not
        allow the call."""
        refusal = self._find_refusal(principal, self._operation(method), agent)
        if refusal is not None:
            self._refuse(method, agent, refusal)

    def _refuse(self, method: str, agent: str, refusal: FaultError) -> NoReturn:
        self._hub.auditor.note_denial(self._operation(method), agent, refusal.fault.message)
        raise refusal

    def _operation(self, method: str) -> Operation:
        operation = self._operations.get(method)
        if operation is None:
            raise FaultError(
                FaultCode.FORBIDDEN, f"The gateway permits no call of {self._part}.{method}: it has no operation."
            )
        return operation

    def has_rules_by_agent(self, principal: Principal, method: str) -> bool:
        """Return True if the decision on a call can depend on the agent. Raises forbidden if the method has no
        operation."""
        return self._policy.has_rules_by_agent(principal, self._operation(method), self._protocol)

    def is_allowed(self, principal: Principal, method: str, agent: str) -> bool:
        """Return whether the policy allows a call to a method. Raises forbidden if the method has no operation."""
        return self._is_allowed(principal, self._operation(method), agent)

    def _is_allowed(self, principal: Principal, operation: Operation, agent: str) -> bool:
        return self._find_refusal(principal, operation, agent) is None

    def _find_refusal(self, principal: Principal, operation: Operation, agent: str) -> FaultError | None:
        try:
            self._policy.check(principal, operation, agent, self._protocol)
        except FaultError as error:
            if error.fault.code is not FaultCode.FORBIDDEN:
                raise
            return error
        return None

    def can_operate(self, principal: Principal) -> bool:
        """Return True if the caller may operate the gateway."""
        return self._is_allowed(principal, "admin", "")

    # Agents

    def check_agent(self, principal: Principal, method: str, name: str) -> str:
        """Check a call to an agent, and return the name of the agent. Raises forbidden, and not_found for an agent that
        the caller cannot discover."""
        agent = self._hub.agent(name).name
        refusal = self._find_refusal(principal, self._operation(method), agent)
        if not self._is_allowed(principal, "discover", agent):
            raise unknown_agent(name)
        if refusal is not None:
            self._refuse(method, agent, refusal)
        return agent

    def agents(self, principal: Principal, method: str) -> frozenset[str] | None:
        """Return the names of the agents for which a call is allowed, or None for all. Raises forbidden if the call is
        allowed for no agent."""
        self.check(principal, method)
        if not self.has_rules_by_agent(principal, method):
            return None
        return frozenset(info.name for info in self._hub.agents() if self.is_allowed(principal, method, info.name))

    def check_object(self, principal: Principal, method: str, agent: str, missing: str) -> None:
        """Check a call to a method on an object of an agent. Raises forbidden, and not_found with the text `missing` if
        the caller cannot discover the agent."""
        try:
            self.check(principal, method, agent)
        except FaultError:
            if agent and not self._is_allowed(principal, "discover", agent):
                raise FaultError(FaultCode.NOT_FOUND, missing) from None
            raise

    def is_visible(self, principal: Principal, method: str, agent: str, missing: str) -> bool:
        """Check a call as `check_object` does, but return False instead of raising not_found. Otherwise return True.
        Raises forbidden if the caller can discover the agent, but the policy does not allow the call."""
        try:
            self.check_object(principal, method, agent, missing)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            return False
        return True

    # Shared threads

    def can_be_shared(self, principal: Principal) -> bool:
        """Return False if it is certain that no other owner shares a thread with the caller."""
        return self._hub.grants.has_grantee(grantees_of(principal))

    async def owner_of(self, principal: Principal, kind: Kind, used_id: str, method: str) -> str:
        """Return the owner of a thread, task or run that a call uses: the caller's own, or another owner who shares the
        thread with the caller.

        If neither has it, return the caller's owner, with whom the call then raises not_found. Raises forbidden if the
        grant does not include the operation.
        """
        if not self.can_be_shared(principal) or await self._has(principal.owner, kind, used_id):
            return principal.owner
        grant = await self._hub.grants.find(grantees_of(principal), kind, used_id)
        if grant is None:
            return principal.owner
        level = "write" if method == _UPLOAD else _LEVELS.get(self._operation(method))
        if level is None:
            raise FaultError(
                FaultCode.FORBIDDEN,
                f"{name_of(principal)} may not do this with a thread of another owner: it is shared for "
                f"{'reading' if grant.level == 'read' else 'reading and running'}.",
            )
        if level == "write" and grant.level == "read":
            raise FaultError(
                FaultCode.FORBIDDEN, f"{name_of(principal)} may only read this thread: its grant has the level read."
            )
        return grant.owner

    async def _has(self, owner: str, kind: Kind, used_id: str) -> bool:
        reads = self._hub.reads
        read = {"thread": reads.thread, "task": reads.task, "run": reads.run}[kind]
        try:
            await read(owner, used_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            return False
        return True

    # Tasks and runs

    async def check_task(self, principal: Principal, task_id: str, *methods: str) -> str:
        """Check a call of these methods on a task, and return the owner of the task. Raises forbidden if the policy
        does not allow the call. If the rules for the caller depend on the agent, also raises not_found: for an unknown
        task, and for an agent that the caller cannot discover."""
        return await self._check_used(principal, "task", self._hub.reads.task, task_id, methods)

    async def check_run(self, principal: Principal, run_id: str, *methods: str) -> str:
        """Check a call of these methods on a run, and return the owner of the run. Raises forbidden if the policy does
        not allow the call. If the rules for the caller depend on the agent, also raises not_found: for an unknown run,
        and for an agent that the caller cannot discover."""
        return await self._check_used(principal, "run", self._hub.reads.run, run_id, methods)

    async def _check_used(
        self,
        principal: Principal,
        kind: Kind,
        read: Callable[[str, str], Awaitable[Task | Run]],
        used_id: str,
        methods: Sequence[str],
    ) -> str:
        """Check a call of these methods on the task or run `used_id`, and return its owner. `read` returns the task or
        run, given its owner and its id."""
        owner, agent = principal.owner, ""
        for method in methods:
            owner = await self.owner_of(principal, kind, used_id, method)
        if any(self.has_rules_by_agent(principal, method) for method in methods):
            agent = (await read(owner, used_id)).agent
        for method in methods:
            self.check_object(principal, method, agent, f"{kind.capitalize()} {used_id} not found")
        return owner

    # Threads

    async def check_thread(self, principal: Principal, thread_id: str, method: str, besides: Iterable[str] = ()) -> str:
        """Check a call of a method on a whole thread, and return the owner of the thread. The call must be allowed for
        every agent that has run on the thread, except those in `besides`.

        Raises forbidden, and not_found if an agent ran on it that the caller cannot discover.
        """
        owner = await self.owner_of(principal, "thread", thread_id, method)
        await self.check_agents(principal, owner, thread_id, method, besides)
        return owner

    async def check_agents(
        self, principal: Principal, owner: str, thread_id: str, method: str, besides: Iterable[str] = ()
    ) -> None:
        """Check a call of a method on a whole thread of `owner`. The call must be allowed for every agent that has run
        on the thread, except those in `besides`.

        Raises forbidden, and not_found if an agent ran on it that the caller cannot discover.
        """
        if not self.has_rules_by_agent(principal, method):
            self.check(principal, method)
            return
        agents = set(await self._hub.reads.agents_of(owner, thread_id)) - set(besides)
        for agent in sorted(agents) or ("",):
            self.check_object(principal, method, agent, f"Thread {thread_id} not found")

    async def read_thread(
        self, principal: Principal, thread_id: str, method: str, read: Callable[[str], Awaitable[T]]
    ) -> T:
        """Return what a method reads of a whole thread: the result of `read`, which gets the owner of the thread.
        Raises the faults of `read`, and those of `check_thread`.

        The agents of the thread are checked after the read, because another agent may start a run during it.
        """
        self.check(principal, method)
        owner = await self.owner_of(principal, "thread", thread_id, method)
        value = await read(owner)
        await self.check_agents(principal, owner, thread_id, method)
        return value

    def read_log(
        self, principal: Principal, scope: Scope, method: str, read: LogRead
    ) -> AsyncGenerator[Sequence[Record]]:
        """Return the records that a method reads, in batches. `read` gets the owner of the thread, and returns these
        batches. Raises forbidden, at once or when the first record is read."""
        self.check(principal, method)
        if not self.has_rules_by_agent(principal, method) and not self.can_be_shared(principal):
            return read(principal.owner)
        return self._read_checked(principal, scope, method, read)

    async def _read_checked(
        self, principal: Principal, scope: Scope, method: str, read: LogRead
    ) -> AsyncGenerator[Sequence[Record]]:
        """Yield the records of a scope. The reader of a thread gets an error when an agent begins to run on it that the
        caller may not read, and the reader of a shared thread when the grant ends."""
        owner = await self.owner_of(principal, "thread", scope.thread_id, method)
        missing = f"Thread {scope.thread_id} not found"
        await self._check_scope(principal, owner, scope, method)
        async with aclosing(read(owner)) as batches:
            async for batch in batches:
                if owner != principal.owner:
                    now = await self.owner_of(principal, "thread", scope.thread_id, method)
                    if now != owner:
                        raise FaultError(FaultCode.NOT_FOUND, missing)
                for record in batch:
                    if type(record.event) is TaskCreated:
                        self.check_object(principal, method, record.event.agent, missing)
                yield batch

    async def _check_scope(self, principal: Principal, owner: str, scope: Scope, method: str) -> None:
        if not self.has_rules_by_agent(principal, method):
            return
        match scope.kind, scope.id:
            case "task", str(task_id):
                agent = (await self._hub.reads.task(owner, task_id)).agent
                self.check_object(principal, method, agent, f"Task {task_id} not found")
            case "run", str(run_id):
                agent = (await self._hub.reads.run(owner, run_id)).agent
                self.check_object(principal, method, agent, f"Run {run_id} not found")
            case _:
                await self.check_agents(principal, owner, scope.thread_id, method)
