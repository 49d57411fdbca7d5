"""The agent port: one method. Clients of every protocol, wrapped callables and graphs, recorders and test doubles are
all Agents, so any server can stand in front of any of them."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from babelgate.canonical.caller_tool import CallerTool, caller_tools
from babelgate.canonical.event import Cause, Event, InterruptAnswered, Record, StateSaved
from babelgate.canonical.history import StateHistory
from babelgate.canonical.message import DataPart, FilePart, Message, TextPart, text_of
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.value import Json, JsonObject, Value

AGENT_NAME: Final = re.compile(r"^[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?$")
"""To be matched whole (`fullmatch`): a `$` alone lets a line feed through."""


DEFAULT_OWNER: Final = "default"
"""Everybody, where there are no keys."""

DETACH: Final = "detach"
"""The message of the `CancelledError` by which a gateway that stops lets go of a run that it will re-attach to: the
upstream is not told to cancel."""


class Skill(Value):
    id: str
    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


class AgentInfo(Value):
    """What is known of an agent before it is called. Every protocol's own description (card, manifest, model) is made
    from it."""

    name: str
    """Matches `AGENT_NAME`."""
    description: str = ""
    version: str = "1.0.0"
    input_types: tuple[str, ...] = ("text/plain",)
    output_types: tuple[str, ...] = ("text/plain",)
    skills: tuple[Skill, ...] = ()
    schemas: Mapping[str, JsonObject] = {}
    """JSON Schemas of `input`, `output`, `state`, `config`, of those that are known."""
    metadata: JsonObject = {}
    remembers: bool = False
    """The agent keeps the conversation itself: it is sent the thread's history only where it has not been at work on
    the thread before, or starts from an older revision."""
    takes_history: bool = True
    """The agent has a use for what was said before."""
    stateful: bool = False
    """The agent has a state of its own and yields `StateSaved` for each of its revisions; otherwise the thread's
    revisions follow from what was said (`babelgate.canonical.history`)."""
    replies: bool = False
    """It may answer with a message and make no task of it, as A2A has it: A2A callers are told of a task once it is
    known that there is one."""
    continuable: bool = False
    """A terminal ACP run of this agent takes another message (the "agent run" of early ACP)."""


async def no_past() -> Sequence[Record]:
    return ()


async def no_states() -> StateHistory:
    return StateHistory("")


async def no_files(message: Message) -> Message:
    return message


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One activation of an agent: everything it may need, none of it to be fetched through the hub."""

    owner: str = DEFAULT_OWNER
    agent: str
    thread_id: str
    task_id: str
    run_id: str
    attempt: int = 1
    cause: Cause = "input"
    input: RunInput = field(default_factory=RunInput)
    """Of this run; file parts that are in the artifact store have their bytes in `inline`."""
    answers: tuple[InterruptAnswered, ...] = ()
    """Where this run goes on from questions: all their answers, in the order in which the questions were raised."""
    metadata: JsonObject = field(default_factory=dict[str, object])
    """Of the task: that of its first run's input."""
    origin: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where the run does not go on from what the upstream did last, but from what it did once: its ids, as the run
    bound them that ended so. Who can go on from there need not be told the history."""
    state: JsonObject = field(default_factory=dict[str, object])
    """Where it does not go on from what the upstream did last: members of the state that callers have changed since
    the upstream knew it."""
    opens_thread: bool = False
    """The first start of the first run of a thread that nothing was said on before."""
    history: tuple[Message, ...] = ()
    """What was said on the thread before this run, as far as the agent does not remember it by itself."""
    upstream: Mapping[str, str] = field(default_factory=dict[str, str])
    """The upstream's own ids, as earlier runs bound them: `task` and `run` of this task, `context` and `session` of the
    thread."""
    past: Callable[[], Awaitable[Sequence[Record]]] = no_past
    """The records of this task so far, of those that stand (`babelgate.canonical.replay.standing`): what an
    agent that is started again has said already."""
    with_files: Callable[[Message], Awaitable[Message]] = no_files
    """A message of the history with the bytes of its files in `inline`."""
    states: Callable[[], Awaitable[StateHistory]] = no_states
    """The states that the log has of the thread: an agent with a state of its own need not tell what is in them."""

    # What agents are mostly about, in a word; all else is read from the input.

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.input.messages

    @property
    def data(self) -> Json:
        """Input that is no message."""
        return self.input.data

    @property
    def config(self) -> JsonObject:
        return self.input.config

    @property
    def text(self) -> str:
        """What a text-only agent gets: the last message that has text; else, of the data or of the last data part, its
        `message` or `prompt`, else its only value if that is a string, else all of it as JSON."""
        for message in reversed(self.messages):
            if any(part.kind == "text" for part in message.parts):
                return text_of(message.parts)
        if self.data not in (None, {}, []):
            return data_text(self.data)
        parts = [part for message in self.messages for part in message.parts if isinstance(part, DataPart)]
        return data_text(parts[-1].data) if parts else ""

    @property
    def input_messages(self) -> tuple[Message, ...]:
        """The input as messages, for agents that take nothing else: input that is no message stands beside what was
        said, as data; where nothing was said, the text that it means comes first, and alone if that is all of it."""
        if self.data in (None, {}, []) or any(isinstance(p, DataPart) for m in self.messages for p in m.parts):
            return self.messages
        data = DataPart(data=self.data)
        if self.messages and self.messages[-1].role == "user":
            last = self.messages[-1]
            return (*self.messages[:-1], last.replace(parts=(*last.parts, data)))
        words = None if self.messages else prompt_of(self.data)
        if words is None:
            return (*self.messages, Message(role="user", parts=(data,)))
        whole = not isinstance(self.data, dict) or len(self.data) == 1
        return (Message(role="user", parts=(TextPart(text=words), *(() if whole else (data,)))),)

    @property
    def tools(self) -> Sequence[CallerTool]:
        """That the caller declares: what `UseTool` may call."""
        return caller_tools(self.config)

    @property
    def files(self) -> tuple[FilePart, ...]:
        return tuple(part for message in self.messages for part in message.parts if isinstance(part, FilePart))


def data_text(data: Json) -> str:
    """The text in an input that is no message."""
    if data is None:
        return ""
    words = prompt_of(data)
    return json.dumps(data, ensure_ascii=False) if words is None else words


def prompt_of(data: Json) -> str | None:
    """The words, where an input that is no message means some: a string; of an object its `message`, its `prompt`, or
    its only member."""
    if isinstance(data, str):
        return data
    if isinstance(data, dict):
        for value in (data.get("message"), data.get("prompt"), *(data.values() if len(data) == 1 else ())):
            if isinstance(value, str):
                return value
    return None


class Agent(Protocol):
    def run(self, call: Invocation) -> AsyncIterator[Event]:
        """Yield the events of one run.

        Ids may be left None: the hub fills them. The run pauses if a question is open when the iterator ends, and is
        done otherwise; `RunEnded` is only needed to give an output or another status. An agent that is started again
        (`call.attempt`) may say everything again; or, if it goes on from a state that it keeps, first a `RunStarted`
        that names the messages which are `void`, and then what comes after that state. Raising ends it as failed; a
        `FaultError` keeps its words, any other exception becomes a fault of the agent. Closing the iterator, or
        cancelling the task that awaits it, is the cancel.
        """
        ...


@runtime_checkable
class Reattachable(Protocol):
    """An agent whose active run outlives the gateway."""

    def reattach(self, call: Invocation) -> AsyncIterator[Event]:
        """Yield the events of the upstream's run from its start; `call.upstream` names it. Those that `call.past()`
        holds already are dropped by the caller (`babelgate.canonical.replay.ReplayCursor`)."""
        ...


@runtime_checkable
class Stateful(Protocol):
    """An agent with a state of its own that callers may change (`AgentInfo.stateful`)."""

    async def update_state(
        self, call: Invocation, *, removed_ids: Sequence[str] = (), as_node: str | None = None
    ) -> StateSaved:
        """Make a revision and keep it. No run is active meanwhile, and the call belongs to none: its `data` are the
        members to change, by the agent's own rules, `messages` what is said, `checkpoint` the parent; `removed_ids` are
        ids of messages to leave out. Raises invalid."""
        ...


@runtime_checkable
class Introspectable(Protocol):
    """An agent that can describe its own graph."""

    async def draw(self, depth: int | bool) -> JsonObject | None:
        """`nodes`, a list of objects with an `id` each, and `edges`, a list of objects whose `source` and `target` are
        such ids; what else is in them is the agent's own. With a depth those of graphs inside it, too, so many levels
        down, or all. None if it cannot say after all."""
        ...

    async def subgraphs(self, namespace: str | None, recurse: bool) -> JsonObject | None:
        """The graphs inside it, by namespace: of each its JSON Schemas, by what they describe. All, or the one that is
        named; with `recurse` those inside of these, too. None if it cannot say."""
        ...
