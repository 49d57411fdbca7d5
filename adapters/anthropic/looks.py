"""Requests that read a run as a message."""

from collections.abc import Sequence

from babelgate.adapters.anthropic.carries import VERSION
from babelgate.adapters.anthropic.codec.names import message_id_of
from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest


def looks(target: LookTarget) -> Sequence[Look]:
    """Return the two reads of a run: its message, and the stream of the message from the first event on."""
    path = f"/v1/messages/{message_id_of(target.run.run_id)}"
    stream = ReadRequest(path=f"{path}?stream=true")
    return (
        Look(version=VERSION, title="Anthropic message", request=ReadRequest(path=path)),
        Look(version=VERSION, title="Anthropic message stream", form="stream", request=stream),
    )
