"""Port between the gateway and agents. `Agent` has one method, `run`; other protocols describe what only some agents
can do.

Clients of every protocol, wrapped callables and graphs, and test doubles implement `Agent`, so any server can front any
of them.
"""

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
"""Pattern of a valid agent name. Match it with `fullmatch`: `$` alone also matches before a trailing line feed."""


DEFAULT_OWNER: Final = "default"
"""Owner of everything if the gateway has no API keys."""

DETACH: Final = "detach"
"""Message of the `CancelledError` that detaches a run at shutdown. The upstream is not asked to cancel, because the
gateway re-attaches to the run after its restart."""


class Skill(Value):
    id: str
    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


class AgentInfo(Value):
    """Static description of an agent. Every protocol's own description (card, manifest, model) is built from it."""

    name: str
    """Name of the agent, which matches `AGENT_NAME`."""
    description: str = ""
    version: str = "1.0.0"
    input_types: tuple[str, ...] = ("text/plain",)
    output_types: tuple[str, ...] = ("text/plain",)
    skills: tuple[Skill, ...] = ()
    schemas: Mapping[str, JsonObject] = {}
    """JSON Schemas of the agent, by what they describe: `input`, `output`, `state` and `config`, as far as they are
    known."""
    metadata: JsonObject = {}
    remembers: bool = False
    """True if the agent keeps the conversation itself. The gateway then sends the history only if the agent has not yet
    run on the thread, or if the run starts from an older revision."""
    takes_history: bool = True
    """True if the agent uses earlier messages of the thread."""
    stateful: bool = False
    """True if the agent keeps the thread's state itself and yields `StateSaved` for each revision. Otherwise the
    revisions follow from the messages (`babelgate.canonical.history`)."""
    replies: bool = False
    """True if the agent may answer with a message without creating a task, as A2A allows. A2A callers see a task only
    once the agent has created one."""
    continuable: bool = False
    """True if a caller can send another message to an ACP run of this agent that is already terminal, as in the "agent
    run" of early ACP."""
    ai_sdk: int | None = None
    """Major version of the Vercel AI SDK in the pages that call this agent. None if it is not known."""


async def no_past() -> Sequence[Record]:
    return ()


async def no_states() -> StateHistory:
    return StateHistory("")


async def no_files(message: Message) -> Message:
    return message


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """All data that an agent receives for one run. Agents never call the hub."""

    owner: str = DEFAULT_OWNER
    agent: str
    thread_id: str
    task_id: str
    run_id: str
    attempt: int = 1
    cause: Cause = "input"
    input: RunInput = field(default_factory=RunInput)
    """Input of this run. File parts that are in the artifact store have their bytes in `inline`."""
    answers: tuple[InterruptAnswered, ...] = ()
    """Answers to all questions at which the task had paused and with which this run resumes, in the order in which the
    questions were raised."""
    metadata: JsonObject = field(default_factory=dict[str, object])
    """Metadata of the task, from the input of its first run."""
    origin: Mapping[str, str] = field(default_factory=dict[str, str])
    """Ids that the upstream gave to an earlier run, such as `run` or `context`. Set if this run continues from that
    run, and not from the upstream's newest one. An upstream that can continue from these ids does not need the
    history."""
    state: JsonObject = field(default_factory=dict[str, object])
    """Members of the thread's state that callers have changed since the run from which this run continues, so that the
    upstream does not know them. Empty if there are none, and always for a stateful agent."""
    opens_thread: bool = False
    """True for the first attempt of a thread's first run, if callers had added no messages to the thread before."""
    history: tuple[Message, ...] = ()
    """Messages of the thread before this run, except those that the agent remembers itself."""
    upstream: Mapping[str, str] = field(default_factory=dict[str, str])
    """Ids that the upstream gave to earlier runs (`UpstreamBound`): `task` and `run` of this task, `context` and
    `session` of the thread."""
    past: Callable[[], Awaitable[Sequence[Record]]] = no_past
    """Function that reads the task's committed records, so that a restarted agent sees what it has already sent. If an
    earlier attempt of a run was started over, the events that its agent had sent until then are void and left out
    (`babelgate.canonical.replay.without_voided`). Events of the hub, such as starts and answers, are never void."""
    with_files: Callable[[Message], Awaitable[Message]] = no_files
    """Loader that returns a message of the history with the bytes of its files in `inline`."""
    states: Callable[[], Awaitable[StateHistory]] = no_states
    """Reader of the thread's revisions in the log. A stateful agent can send a state as its difference to one of
    them."""

    # Shortcuts to the members of the input that most agents use.

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.input.messages

    @property
    def data(self) -> Json:
        """Part of the input that is not in messages (`RunInput.data`), for example the keys of a LangGraph input."""
        return self.input.data

    @property
    def config(self) -> JsonObject:
        return self.input.config

    @property
    def text(self) -> str:
        """Input as one text, for agents that accept only text: the text of the last message that has any. Without one,
        it is `data` as text (`data_text`), and without `data`, the last data part of the messages."""
        for message in reversed(self.messages):
            if any(part.kind == "text" for part in message.parts):
                return text_of(message.parts)
        if self.data not in (None, {}, []):
            return data_text(self.data)
        parts = [part for message in self.messages for part in message.parts if isinstance(part, DataPart)]
        return data_text(parts[-1].data) if parts else ""

    @property
    def input_messages(self) -> tuple[Message, ...]:
        """Input as messages, for agents that accept nothing else.

        `data` becomes a data part: of the last message if that is the user's, else of a new user message. If there are
        no messages, the prompt in the data (`prompt_of`) becomes the text of the new message. The data part is then
        left out if the prompt is all of the data. `data` is ignored if any message already has a data part.
        """
        if self.data in (None, {}, []) or any(isinstance(p, DataPart) for m in self.messages for p in m.parts):
            return self.messages
        data = DataPart(data=self.data)
        if self.messages and self.messages[-1].role == "user":
            last = self.messages[-1]
            return (*self.messages[:-1], last.replace(parts=(*last.parts, data)))
        prompt = None if self.messages else prompt_of(self.data)
        if prompt is None:
            return (*self.messages, Message(role="user", parts=(data,)))
        whole = not isinstance(self.data, dict) or len(self.data) == 1
        return (Message(role="user", parts=(TextPart(text=prompt), *(() if whole else (data,)))),)

    @property
    def tools(self) -> Sequence[CallerTool]:
        """Tools that the caller declares, which the agent can call with `UseTool`."""
        return caller_tools(self.config)

    @property
    def files(self) -> tuple[FilePart, ...]:
        return tuple(part for message in self.messages for part in message.parts if isinstance(part, FilePart))


def data_text(data: Json) -> str:
    """Return `RunInput.data` as text: its prompt (`prompt_of`) if it has one, else all of it as JSON. Return an empty
    text if `data` is None."""
    if data is None:
        return ""
    prompt = prompt_of(data)
    return json.dumps(data, ensure_ascii=False) if prompt is None else prompt


def prompt_of(data: Json) -> str | None:
    """Return the prompt in `RunInput.data`, or None. A string is itself the prompt. In an object the prompt is the
    first string among the member `message`, the member `prompt`, and the only member."""
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

        Ids may be left None: the hub fills them. If a question is open when the iterator ends, the run pauses;
        otherwise it is done. `RunEnded` is needed only to return an output or another status.

        An agent that is started again (`call.attempt`) may repeat everything. An agent that continues from a state that
        it has saved first yields a `RunStarted` that lists the `void` messages, and then only what follows that state.

        An exception fails the run. A `FaultError` keeps its text; any other exception becomes a fault of the agent. To
        cancel the run, the hub closes the iterator or cancels the task that awaits it.
        """
        ...


@runtime_checkable
class Reattachable(Protocol):
    """Agent whose active run continues on its own server if the gateway stops, so that the gateway can read the rest of
    it after a restart."""

    def reattach(self, call: Invocation) -> AsyncIterator[Event]:
        """Yield the events of the upstream's run from its start; `call.upstream` identifies the run. The gateway drops
        the events that `call.past()` already holds (`babelgate.canonical.replay.ReplayCursor`)."""
        ...


@runtime_checkable
class Stateful(Protocol):
    """Agent that keeps its own state, which callers may change (`AgentInfo.stateful`)."""

    async def update_state(
        self, call: Invocation, *, removed_ids: Sequence[str] = (), as_node: str | None = None
    ) -> StateSaved:
        """Save a new revision and return it. Raises invalid if the agent refuses the change.

        No run is active meanwhile, and the call belongs to no run. `call.data` holds the members to change, by the
        agent's own rules. `call.messages` are the new messages, and `call.input.checkpoint` is the parent revision.
        `removed_ids` are ids of messages to leave out. `as_node` names the node as whose output the change is saved;
        None leaves the choice to the agent.
        """
        ...


@runtime_checkable
class Introspectable(Protocol):
    """Agent that can describe its own graph."""

    async def draw(self, depth: int | bool) -> JsonObject | None:
        """Return the agent's graph, or None if the agent cannot describe it.

        `nodes` is a list of objects with an `id`, and `edges` a list of objects whose `source` and `target` are such
        ids. Other members are the agent's own. `depth` includes graphs inside the graph: a number of levels, or True
        for all.
        """
        ...

    async def subgraphs(self, namespace: str | None, recurse: bool) -> JsonObject | None:
        """Return the graphs inside the agent's graph by namespace, or None if the agent cannot describe them.

        Each graph is an object of JSON Schemas under the names of what they describe, such as `input` and `state`.
        `namespace` selects one graph, and None all. `recurse` includes the graphs inside these.
        """
        ...
