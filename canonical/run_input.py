"""RunInput: what a run is started with. It is carried whole, from the adapter that read the request to the agent.

What stands between the two hands it on and names no member of it that it does not act on. So a new field of a request
is a field here, and is known to the adapter that reads it and to the agent that wants it.
"""

from collections.abc import Mapping

from babelgate.canonical.message import Message
from babelgate.canonical.value import Extra, Json, JsonObject, Value


class RunInput(Value):
    """In the log its members stand beside those of the event that holds them
    (`babelgate.canonical.event.RunCreated`)."""

    messages: tuple[Message, ...] = ()
    uploaded: int = 0
    """How many parts at the end of the last message are files that the caller gave beside what was said."""
    data: Json = None
    """Input that is no message: the keys of a LangGraph input, an AIEF additional_input."""
    checkpoint: str | None = None
    """The revision to start from (`babelgate.canonical.history`); None = the newest."""
    config: JsonObject = {}
    metadata: JsonObject = {}
    """Of the run, and of the task where the run begins one."""
    headers: Mapping[str, str] = {}
    """Of the caller's request: those that the agent's settings name are kept, for the agent's server."""
    assistant: str | None = None
    """The caller's own name of the agent or of a configuration of it."""
    extra: Extra = {}
