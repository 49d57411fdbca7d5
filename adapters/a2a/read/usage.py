"""The usage that another A2A server tells of: of its task, or of calls of models that add up."""

from babelgate.adapters.a2a.codec.marks import add_usage, tokens_of_trace, usage_of_message, usage_of_task, usage_so_far
from babelgate.canonical.value import JsonObject


class UsageCounter:
    """Of one run."""

    def __init__(self) -> None:
        self._sum: JsonObject = {}
        self._counted: set[str] = set()
        """Of which events the usage is in the sum."""
        self._so_far: JsonObject = {}
        """What was last told of the whole task, before its end."""
        self._traced: JsonObject = {}
        """The same, of a trace: it is told with an answer, and counts all tokens alike."""

    @property
    def total(self) -> JsonObject:
        return self._so_far or self._sum or self._traced

    def count(self, metadata: JsonObject | None, name: str | None, *, of_update: bool = False) -> None:
        """What is told of one call of a model, or of the task so far. `name` = the id of what tells it."""
        if not metadata:  # as with most pieces of an answer
            return
        so_far = usage_so_far(metadata, of_update=of_update)
        self._so_far = so_far or self._so_far
        self._traced = tokens_of_trace(metadata) or self._traced
        usage = {} if so_far else usage_of_message(metadata)
        event = str((metadata or {}).get("adk_event_id") or name or "")
        if usage and event not in self._counted:
            self._counted.add(event)
            self._sum = add_usage(self._sum, usage)

    def count_history(self, metadata: JsonObject | None, name: str | None) -> None:
        """Of a message that was said while nobody listened."""
        self.count(metadata, name)
        self._sum = self._sum or usage_of_task(metadata)
