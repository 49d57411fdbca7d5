"""Stream modes: the kinds of events that a caller selects for a stream, and the ids at which a stream resumes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from babelgate.canonical import FaultCode, FaultError, RunInput
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json

Dialect = Literal["langgraph", "agent-protocol"]

_MODES: Final[Mapping[Dialect, tuple[str, ...]]] = {
    "langgraph": (
        "values",
        "messages",
        "messages-tuple",
        "updates",
        "events",
        "tasks",
        "checkpoints",
        "debug",
        "custom",
    ),
    # For both layouts. They leave open what a stream of messages contains; here it is the tuples, under either name.
    "agent-protocol": ("values", "messages", "messages-tuple", "updates", "debug", "custom"),
}
THREAD_MODES: Final = ("run_modes", "lifecycle", "state_update")
"""Modes of a stream that follows a thread from run to run. `run_modes` shows each run in the modes with which it was
created, `lifecycle` only starts and ends of runs, and `state_update` the states that callers create."""

RECORDS: Final = "babelgate"
"""Name of the stream event with records in an envelope of the Babelgate extension. It is sent in every mode if the
caller activated the extension."""
EVENTS: Final = "events"
"""Stream mode with LangChain's own events (`astream_events`), which only LangGraph graphs produce."""
_SEQ_LIMIT: Final = 2**63
"""Exclusive upper bound of a seq: both databases store it as a signed 64-bit integer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamParameters:
    """Parameters that determine how records are encoded as a stream. Readers with equal parameters share encoded
    frames."""

    thread_id: str
    owner: str
    run_id: str | None
    """The run that the stream shows. None: the whole thread, run after run."""
    modes: tuple[str, ...]
    created_at: int = 0
    """Creation time of the run, or of the thread, in microseconds since 1970. It distinguishes a new thread from an
    erased one with the same id, so that their readers share no frames."""
    dialect: Dialect = "langgraph"
    subgraphs: bool = False
    extended: bool = False
    """True if the caller has activated the Babelgate extension. Applies to streams of one run."""


def parse_modes(value: Json, dialect: Dialect = "langgraph") -> tuple[str, ...]:
    """Return the stream modes in the member `stream_mode` of a request: one mode, or a list of them. None means
    `values`. Raises invalid for an unknown mode."""
    return _parse(value, _MODES[dialect], "values")


def has_events_mode(run_input: RunInput) -> bool:
    """Return True if the run was created with the stream mode `events` (LangChain's `astream_events`). Only then does
    the gateway request these events from the graph, or from its server."""
    modes: Any = as_object(as_object(run_input.extra.get("langgraph")).get("kwargs")).get("stream_mode")
    return modes == EVENTS or (isinstance(modes, list) and EVENTS in modes)


def parse_thread_modes(value: Json) -> tuple[str, ...]:
    """Return the stream modes in a request that follows a thread: one of `THREAD_MODES`, or a list of them. None means
    `run_modes`. Raises invalid for an unknown mode."""
    return _parse(value, THREAD_MODES, "run_modes")


def _parse(value: Json, allowed: tuple[str, ...], default: str) -> tuple[str, ...]:
    # langgraph-api 0.16.7 and the README's layout have the same default.
    if value is None or value == []:
        return (default,)
    modes: list[Any] = value if isinstance(value, list) else [value]
    for mode in modes:
        if mode not in allowed:
            # aegra 0.11.0 accepts any mode, and then sends nothing.
            raise FaultError(FaultCode.INVALID, f"Unknown stream mode {str(mode)[:50]!r}: it is one of {allowed}.")
    return tuple(dict.fromkeys(modes))


def base_mode(event: str) -> str:
    """Return the stream mode that an event belongs to, from the event's name: `updates` for `updates|node:id`, for
    example."""
    name = event.partition("|")[0]
    # The mode messages-tuple sends `messages`; the mode messages sends `messages/…`.
    if name == "messages":
        return "messages-tuple"
    return name.partition("/")[0]


def parse_event_id(text: str) -> tuple[int, int] | None:
    """Return the position after which a stream resumes, from an event id `<seq>-<n>`: the seq of a record, and the
    number of a frame among those of that record.

    Return None if the text has another form. `-1` is the position before the first frame, (0, -1).
    """
    # langgraph-api 0.16.7: `-1` requests all stored events.
    if text == "-1":
        return 0, -1
    seq, dash, n = text.partition("-")
    if not dash or not all(digits.isascii() and digits.isdigit() and len(digits) < 20 for digits in (seq, n)):
        return None
    position = int(seq), int(n)
    return position if max(position) < _SEQ_LIMIT else None
