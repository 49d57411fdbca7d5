"""Stream modes: what a caller asks of a stream, and from where on."""

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
    # Of both layouts. What a stream of messages holds is left open by both: here it is the tuples, by either name.
    "agent-protocol": ("values", "messages", "messages-tuple", "updates", "debug", "custom"),
}
THREAD_MODES: Final = ("run_modes", "lifecycle", "state_update")
"""Of a stream that follows a thread over its runs: each run in the modes that it was created with, or only that runs
begin and end, or the states that callers make."""

RECORDS: Final = "babelgate"
"""The event that holds an envelope of the Babelgate extension, beside those of all modes."""
EVENTS: Final = "events"
_LARGEST: Final = 2**63
"""Of a seq: columns of both databases hold 64 bits, with a sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything but the records that an encoding depends on."""

    thread_id: str
    owner: str
    run_id: str | None
    """None = the whole thread, run after run."""
    modes: tuple[str, ...]
    created_at: int = 0
    """Of the run, or of the thread: the id of an erased thread may be given out again, and whoever still reads of the
    old one shares nothing with the readers of the new one."""
    dialect: Dialect = "langgraph"
    subgraphs: bool = False
    extended: bool = False
    """The caller has activated the Babelgate extension: of one run."""


def parse_modes(value: Json, dialect: Dialect = "langgraph") -> tuple[str, ...]:
    """A mode or a list of them; None = values. Raises invalid."""
    return _parse(value, _MODES[dialect], "values")


def has_events_mode(given: RunInput) -> bool:
    """Whether the caller of a run wants LangChain's own events (`astream_events`), which nobody else reads."""
    modes: Any = as_object(as_object(given.extra.get("langgraph")).get("kwargs")).get("stream_mode")
    return modes == EVENTS or (isinstance(modes, list) and EVENTS in modes)


def parse_thread_modes(value: Json) -> tuple[str, ...]:
    """Raises invalid."""
    return _parse(value, THREAD_MODES, "run_modes")


def _parse(value: Json, known: tuple[str, ...], default: str) -> tuple[str, ...]:
    # The default of langgraph-api 0.16.7 and of the README's layout alike.
    if value is None or value == []:
        return (default,)
    asked: list[Any] = value if isinstance(value, list) else [value]
    for mode in asked:
        if mode not in known:
            # aegra 0.11.0 takes any, and then sends nothing.
            raise FaultError(FaultCode.INVALID, f"Unknown stream mode {str(mode)[:50]!r}: it is one of {known}.")
    return tuple(dict.fromkeys(asked))


def base_mode(event: str) -> str:
    """The mode that an event belongs to."""
    name = event.partition("|")[0]
    # `messages` is what the mode messages-tuple sends; `messages/…` is what the mode messages does.
    if name == "messages":
        return "messages-tuple"
    return name.partition("/")[0]


def parse_event_id(text: str) -> tuple[int, int] | None:
    """`<seq>-<n>`, after which a reader goes on. `-1` stands before everything. None = none of ours."""
    # langgraph-api 0.16.7: everything that is kept.
    if text == "-1":
        return 0, -1
    seq, dash, n = text.partition("-")
    if not dash or not all(each.isascii() and each.isdigit() and len(each) < 20 for each in (seq, n)):
        return None
    found = int(seq), int(n)
    return found if max(found) < _LARGEST else None
