"""The canonical model: what an agent run is, in no protocol's words.

An **agent** is called on a **thread**, one conversation of one owner. What a caller asks for is a **task**; it is open
until it is completed, failed, cancelled or rejected, and terminal is final. Each activation of the agent on a task is a
**run**: from an input, or from the last answer to its questions, to the next stop. Everything that happens is an
**event**, committed as a numbered **record** of the thread's append-only log.

A view in any protocol (an A2A task, an ACP run, a LangGraph thread state, an OpenAI response, an AIEF step) is a fold
over records, and a stream is their encoding one by one. So a stream can be replayed from anywhere, a reader can come
back, and the same run looks the same from every protocol.

The module below each name says more: `message`, `run_input`, `event`, `state`, `thread` (snapshots), `fold`, `fault`,
`feature`, `caller_tool`, `history` (states and their revisions), `agent` (the port behind the hub), `hub` and `store`
(the ports in front of it), `author` (what in-process agents yield), `replay`.
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
