"""Output of a run, and messages that were not streamed, from the run's newest state."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.langchain.read.messages import MessageDecoder, is_agents
from babelgate.adapters.langchain.read.run_state import RunState
from babelgate.canonical import DataPart, Event, Part, TextPart
from babelgate.canonical.event import LossNoted, MessageEnded, MessageStarted, PartAdded
from babelgate.canonical.json import as_list, as_object
from babelgate.canonical.value import Json, JsonObject

_STRUCTURED: Final = "structured_response"
"""Member of the state in which agents of langchain 1 (`create_agent`) and of langgraph-prebuilt store their structured
output."""


class OutputReader:
    """Reader of one run's output in its newest state. `members` are the names of the state's members that are the
    output; None means all."""

    def __init__(self, run: RunState, messages: MessageDecoder, members: frozenset[str] | None) -> None:
        self._run = run
        self._messages = messages
        self._members = members
        self._declared: Sequence[str] = ()
        """Names of the state's members that are the output, as another Babelgate reports them."""

    def read_account(self, metadata: Json) -> Sequence[Event]:
        """Read the run's usage and its output members from the member `babelgate` of the run's metadata, which another
        Babelgate sends. Return its losses as events."""
        account = as_object(as_object(metadata).get("babelgate"))
        self._declared = [name for name in as_list(account.get("output")) if isinstance(name, str)]
        self._messages.usage = self._messages.usage or as_object(account.get("usage"))
        losses = as_object(account.get("loss"))
        return [LossNoted(feature=feature, how=how) for feature, how in losses.items() if isinstance(how, str)]

    def read_messages(self) -> Sequence[Event]:
        """Return the events of the agent's messages after the caller's last message, as far as they were not
        streamed."""
        return [
            event
            for wire in self._last_messages()
            if not self._messages.has_ended(wire)
            for event in self._messages.whole(wire)
        ]

    def answer(self) -> Sequence[Event]:
        """Return the events of an answer, if no message of the agent was streamed: the state's messages, or the output
        as a message if the state has no messages."""
        if self._messages.has_answer:
            return ()
        if "messages" in as_object(self._run.values):
            return self.read_messages()
        output = self.value
        if not output:
            return ()
        # The output is in the agent's state and in none of its messages, so callers of LangGraph get no message.
        started = MessageStarted(extra={"langgraph": {"derived": True}})
        return (started, PartAdded(part=_output_part(output)), MessageEnded())

    @property
    def value(self) -> Json:
        """Structured output of the run from its newest state, or None. An agent with messages has one only in
        `structured_response`, or as data in its messages that the state repeats."""
        values = as_object(self._run.values)
        if self._declared and all(name in values for name in self._declared):
            return {name: values[name] for name in self._declared}
        if "messages" not in values:
            if isinstance(self._run.values, dict) and self._members is not None:
                return {name: value for name, value in values.items() if name in self._members} or None
            return self._run.values or None
        if _STRUCTURED in values:
            return values[_STRUCTURED]
        data = self._messages.data
        # Another Babelgate puts structured output into the state, too.
        return data if isinstance(data, dict) and data and data.items() <= values.items() else None

    def _last_messages(self) -> Sequence[JsonObject]:
        """Return the agent's messages in the state after the caller's last message, oldest first. Messages of tools are
        skipped."""
        messages: list[JsonObject] = []
        for message in reversed(as_list(as_object(self._run.values).get("messages"))):
            if not is_agents(message):
                if as_object(message).get("type", as_object(message).get("role")) in ("tool", "function"):
                    continue
                break
            messages.insert(0, as_object(message))
        return messages


def _output_part(output: Json) -> Part:
    """Return the output as a `TextPart` if it is a string, or an object whose only member is a string. Otherwise return
    a `DataPart`."""
    only = next(iter(output.values())) if isinstance(output, dict) and len(output) == 1 else output
    return TextPart(text=only) if isinstance(only, str) else DataPart(data=output)
