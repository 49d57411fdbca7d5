"""Names and ids that the gateway uses on the wire: own types of activities and events, and ids derived from those of
the log."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from babelgate.adapters.ag_ui import wire as w
from babelgate.canonical.event import RunCreated
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import JsonObject

PROTOCOL: Final = "ag-ui"

FILE: Final = "babelgate.file"
"""Activity that shows a file of a message."""
ARTIFACT: Final = "babelgate.artifact"
"""Activity that shows an artifact."""
PROGRESS: Final = "babelgate.progress"
"""Activity that shows a progress message."""
LOSS: Final = "babelgate.loss"
"""Custom event that reports a feature that was lost."""
CUSTOM: Final = "babelgate.custom"
"""Name of custom events of agents that give them none."""

CANCELLED: Final = "cancelled"
"""Code of the `RUN_ERROR` of a cancelled run, for clients older than 1.0."""
SUPERSEDED: Final = "superseded"
"""Code of the `RUN_ERROR` of a run that another one has replaced."""


class WireIds(NamedTuple):
    """Names of a run as its caller knows it, and the vocabulary that the caller understands."""

    thread_id: str
    run_id: str
    is_old: bool = False
    """True if the caller is older than 1.0: its request had no `protocolVersion`."""


def encode_ids(ids: WireIds) -> JsonObject:
    """Return the members that a run stores, so that each replay of its stream has the same bytes."""
    return {"runId": ids.run_id, **({"old": True} if ids.is_old else {})}


def decode_ids(created: RunCreated, thread_id: str) -> WireIds:
    """Return the wire ids of a run. `thread_id` is the reader's name of the thread, which may differ from that of the
    caller. A run of another protocol has the gateway's id."""
    stored = as_object(created.extra.get(PROTOCOL))
    return WireIds(thread_id, as_text(stored.get("runId")) or created.run_id, stored.get("old") is True)


def reasoning_id(message_id: str, index: int) -> str:
    """Return the id of the message of the wire that shows a reasoning part."""
    return f"reasoning-{index}-{message_id}"


def file_id(message_id: str, index: int) -> str:
    """Return the id of the activity that shows a file of a message."""
    return f"file-{index}-{message_id}"


def artifact_id(name: str) -> str:
    """Return the id of the activity that shows an artifact."""
    return f"artifact-{name}"


def parent_id(call_id: str) -> str:
    """Return the id of the message that holds a tool call which belongs to no other message."""
    return f"call-{call_id}"


def result_id(call_id: str) -> str:
    """Return the id of the message with the result of a tool call."""
    return f"result-{call_id}"


def own_of(event: Mapping[str, Any]) -> JsonObject:
    """Return the gateway's own members in the metadata of an event or a message."""
    return as_object(as_object(event.get("metadata")).get(w.OWN))
