"""Trace of one attempt of a run: the agent's tool calls become spans, and the text of its answer an attribute."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol

from babelgate.canonical.agent import AgentInfo, Invocation
from babelgate.canonical.event import Event, MessageStarted, PartAdded, PartDelta, RunEnded, ToolEnded, ToolStarted
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.message import TextPart
from babelgate.canonical.state import ERRED
from babelgate.gateway.observe import AttemptSpan, GatewayTraces
from babelgate.gateway.runs.run_reports import count_tokens

_PROVIDER: Final = "babelgate"
"""Value of `gen_ai.provider.name` in the span of an attempt. The spans of calls to agents' servers name their
protocols."""


class AttemptTrace:
    """Converter of an attempt's events into tool spans and output text of the attempt's span."""

    def __init__(self, span: AttemptSpan) -> None:
        self._span = span
        self._silent: set[str | None] = set()
        """Ids of messages that are not part of the answer, such as reasoning."""
        self.takes_text = span.has_content
        """True if the text of messages is recorded."""

    def note(self, event: Event) -> None:
        """Record a new event in the span: a tool call, a tool result, or text of the answer. All other events are
        ignored."""
        match event:
            case ToolStarted():
                self._span.note_tool_started(event.call_id or "", event.name, event.input)
            case ToolEnded():
                error = None if event.fault is None else str(event.fault.code)
                self._span.note_tool_ended(event.call_id or "", event.output, error)
            case MessageStarted() if self.takes_text and event.phase != "answer":
                self._silent.add(event.message_id)
            case PartAdded() if self.takes_text and isinstance(event.part, TextPart):
                self._add_text(event.message_id, event.part.text)
            case PartDelta() if self.takes_text:
                self._add_text(event.message_id, event.text)
            case _:
                pass

    def _add_text(self, message_id: str | None, text: str) -> None:
        if message_id not in self._silent:
            self._span.add_output(text)


class TracedAttempt(Protocol):
    """Interface of an attempt that can be traced, implemented by `babelgate.gateway.runs.attempt.AttemptFilter`."""

    trace: AttemptTrace | None

    @property
    def run_end(self) -> RunEnded | None:
        """The `RunEnded` event of the agent; None if it has sent none."""
        ...


_UNTRACED: Final = nullcontext()
"""Context of all attempts that are not traced. A separate one would take 460 bytes of each silent run."""


def trace_attempt(
    traces: GatewayTraces | None, attempt: TracedAttempt, call: Invocation, info: AgentInfo
) -> AbstractContextManager[None]:
    """Return a context that records a span around an attempt while its agent runs. It does nothing if `traces` is None:
    the gateway sends no traces."""
    return _UNTRACED if traces is None else _record_attempt(traces, attempt, call, info)


@contextmanager
def _record_attempt(
    traces: GatewayTraces, attempt: TracedAttempt, call: Invocation, info: AgentInfo
) -> Generator[None]:
    span, error = _start_span(traces, call, info), None
    if span.is_recording:
        attempt.trace = AttemptTrace(span)
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        _end_span(span, attempt.run_end, error)


def _start_span(traces: GatewayTraces, call: Invocation, info: AgentInfo) -> AttemptSpan:
    attributes = {
        "gen_ai.provider.name": _PROVIDER,
        "gen_ai.conversation.id": call.thread_id,
        "babelgate.task.id": call.task_id,
        "babelgate.run.id": call.run_id,
        "babelgate.run.attempt": call.attempt,
    }
    question = "" if call.answers else call.text  # an answer may be a credential
    return traces.start_attempt(call.input.trace, info.name, info.version, attributes, question)


def _end_span(span: AttemptSpan, ended: RunEnded | None, error: BaseException | None) -> None:
    """End the span of an attempt with an error code, or with the counts of tokens.

    `ended` is the agent's `RunEnded` event, and `error` the exception that it raised. Without either, the agent has
    returned.
    """
    if isinstance(error, FaultError):
        span.end(str(error.fault.code), {})
    elif isinstance(error, Exception):
        span.end(str(FaultCode.AGENT_FAILED), {})
    elif error is not None:  # the attempt was cancelled or detached
        span.end("cancelled", {})
    elif ended is not None:
        has_failed = ended.status in ERRED
        code = str(ended.fault.code) if ended.fault is not None else str(FaultCode.AGENT_FAILED)
        span.end(code if has_failed else None, count_tokens(ended.usage))
    else:
        span.end(None, {})
