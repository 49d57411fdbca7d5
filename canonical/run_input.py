"""RunInput: the input of a run, passed whole from the adapter that read the request to the agent.

The layers between them pass it on and name only the members that they act on. So a new field of a request is a field
here, and only the adapter that reads it and the agent that uses it have to know it.
"""

from collections.abc import Mapping

from babelgate.canonical.message import Message
from babelgate.canonical.value import Extra, Json, JsonObject, Value


class RunInput(Value):
    """Input of a run. In the log its members are stored with those of the event that holds them
    (`babelgate.canonical.event.RunCreated`)."""

    messages: tuple[Message, ...] = ()
    uploaded: int = 0
    """Number of parts at the end of the last message that are separately uploaded files."""
    data: Json = None
    """Input that is not a message: the keys of a LangGraph input, an AIEF additional_input."""
    checkpoint: str | None = None
    """Revision to start from (`babelgate.canonical.history`); None means the newest."""
    config: JsonObject = {}
    metadata: JsonObject = {}
    """Metadata of the run, and of the task if the run begins one."""
    headers: Mapping[str, str] = {}
    """Headers of the caller's request that the agent's settings name. They are passed on to the agent's server."""
    trace: Mapping[str, str] = {}
    """Context of the trace in which the run was created, as the headers of W3C Trace Context and Baggage. The hub sets
    it; it is empty if the gateway sends no traces."""
    assistant: str | None = None
    """Name of the agent, or of the assistant that configures it, as the caller wrote it."""
    extra: Extra = {}
