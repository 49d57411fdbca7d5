"""Requests that read a run as a message."""

from collections.abc import Sequence

from babelgate.adapters.anthropic.carries import VERSION
from babelgate.adapters.anthropic.codec.names import message_id_of
from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest
from babelgate.canonical import RunStatus


def looks(target: LookTarget) -> Sequence[Look]:
    """Return the two reads of a run: its message, and the stream of the message from the first event on."""
    path = f"/v1/messages/{message_id_of(target.run.run_id)}"
    stream = ReadRequest(path=f"{path}?stream=true")
    has_failed = target.run.has_ended and target.run.status not in (RunStatus.SUCCESS, RunStatus.PAUSED)
    why_not = f"A run that ended as {target.run.status} has no message: a request for it gets the error."
    whole = None if has_failed else ReadRequest(path=path)
    return (
        Look(version=VERSION, title="Anthropic message", request=whole, why_not=why_not if has_failed else ""),
        Look(version=VERSION, title="Anthropic message stream", form="stream", request=stream),
    )
