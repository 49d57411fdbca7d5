"""Canonical model: agent runs in terms that belong to no protocol.

An **agent** is called on a **thread**, one conversation of one owner. A caller's request is a **task**. It is open
until it is completed, failed, cancelled or rejected; these four states are terminal. Each activation of the agent on a
task is a **run**: from an input, or from the last answer to its questions, to the next stop. Everything that happens is
an **event**, committed as a numbered **record** of the thread's append-only log.

A view in any protocol (an A2A task, an ACP run, a LangGraph thread state, an OpenAI response, an AIEF step) is a fold
over records, and a stream encodes the records one by one. So a stream can be replayed from any record, a reader can
reconnect, and the same run looks the same in every protocol.

Each module describes one part:

- `message`, `run_input`, `event`: contents of the log
- `state`, `thread`, `fold`, `history`: states, snapshots, projections, and revisions of a thread
- `fault`, `feature`, `caller_tool`: errors, capabilities of protocols, tools of callers
- `agent`: the port behind the hub
- `hub`, `store`: the ports in front of it
- `author`: values that in-process agents yield
- `replay`: agents that are started again
"""

from babelgate._renamed import refuse_former_name
from babelgate.canonical.agent import Agent, AgentInfo, Invocation, Reattachable, Skill
from babelgate.canonical.assistant import Assistant, AssistantChange, AssistantQuery, Assistants
from babelgate.canonical.author import Ask, Declined, Step, ToolCall, UseTool
from babelgate.canonical.caller_tool import CallerTool, caller_tools, declared_tools
from babelgate.canonical.cron import Cron, CronQuery, Crons
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    Event,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    Record,
    RunEnded,
    RunStarted,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
)
from babelgate.canonical.fault import BLAME, Fault, FaultCode, FaultError
from babelgate.canonical.feature import FULL, Carry, Feature, dropped, lossy, whole
from babelgate.canonical.fold import Fold
from babelgate.canonical.history import Revision, StateHistory
from babelgate.canonical.hub import (
    Answers,
    Fork,
    Hub,
    Receipt,
    RunFilter,
    Scope,
    StateUpdate,
    Submission,
    TaskFilter,
    TaskPage,
    ThreadChange,
    ThreadFilter,
    Webhook,
)
from babelgate.canonical.listed import Listed
from babelgate.canonical.message import (
    AnnotationPart,
    DataPart,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.principal import Principal
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.state import RunReason, RunStatus, TaskState
from babelgate.canonical.store import Item, ItemQuery, NamespaceQuery, Store
from babelgate.canonical.thread import Artifact, Interrupt, Run, Task, Thread, ThreadView

__all__ = (
    "BLAME",
    "FULL",
    "Agent",
    "AgentInfo",
    "AnnotationPart",
    "Answers",
    "Artifact",
    "ArtifactAdded",
    "Ask",
    "Assistant",
    "AssistantChange",
    "AssistantQuery",
    "Assistants",
    "CallerTool",
    "Carry",
    "Cron",
    "CronQuery",
    "Crons",
    "Custom",
    "DataPart",
    "Declined",
    "Event",
    "Fault",
    "FaultCode",
    "FaultError",
    "Feature",
    "FilePart",
    "Fold",
    "Fork",
    "Hub",
    "Interrupt",
    "InterruptAnswered",
    "InterruptRaised",
    "Invocation",
    "Item",
    "ItemQuery",
    "Listed",
    "LossNoted",
    "Message",
    "MessageEnded",
    "MessageStarted",
    "NamespaceQuery",
    "Native",
    "Part",
    "PartAdded",
    "PartDelta",
    "PartEnded",
    "Principal",
    "ReasoningPart",
    "Reattachable",
    "Receipt",
    "Record",
    "RefusalPart",
    "Revision",
    "Run",
    "RunEnded",
    "RunFilter",
    "RunInput",
    "RunReason",
    "RunStarted",
    "RunStatus",
    "Scope",
    "Skill",
    "StateHistory",
    "StateSaved",
    "StateUpdate",
    "Step",
    "StepEnded",
    "StepStarted",
    "Store",
    "Submission",
    "Task",
    "TaskFilter",
    "TaskPage",
    "TaskState",
    "TextPart",
    "Thread",
    "ThreadChange",
    "ThreadFilter",
    "ThreadView",
    "ToolCall",
    "ToolCallPart",
    "ToolEnded",
    "ToolResultPart",
    "ToolStarted",
    "UpstreamBound",
    "UseTool",
    "Webhook",
    "caller_tools",
    "declared_tools",
    "dropped",
    "lossy",
    "whole",
)

refuse_former_name(__name__)
