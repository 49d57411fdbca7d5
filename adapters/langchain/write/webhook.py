"""Bodies of webhooks, posted when a run has ended: the run in the form of LangGraph Platform, and the thread's
values."""

from collections.abc import Iterable, Mapping
from typing import Literal

from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.langchain.codec import state
from babelgate.adapters.langchain.errors.encode import encode_error
from babelgate.canonical import Record, Run, RunStatus, StateHistory, Task, Webhook
from babelgate.canonical.event import RunCreated, RunEnded
from babelgate.canonical.value import JsonObject


class Writer:
    """Writer of the webhook of one run. It writes one body, when the run with the id in `webhook.config` ends."""

    scope: Literal["task", "thread"] = "thread"
    """Records that the writer receives: all those of the thread, because the body has the thread's values."""
    once = True

    def __init__(self, webhook: Webhook, task: Task, name: str) -> None:
        self._run_id: str = webhook.config["run_id"]
        self._history = StateHistory(task.thread_id)
        self._created: RunCreated | None = None

    def headers(self) -> Mapping[str, str]:
        return {"Content-Type": "application/json"}

    def write(self, record: Record) -> Iterable[bytes | LargeJson]:
        self._history.apply(record)
        event = record.event
        if isinstance(event, RunCreated) and event.run_id == self._run_id:
            self._created = event
        if not isinstance(event, RunEnded) or record.run_id != self._run_id or self._created is None:
            return []
        return [encode(self._body(self._history.fold.runs[self._run_id], self._created, record.at))]

    def _body(self, run: Run, created: RunCreated, at: int) -> JsonObject:
        started = None if run.started_at is None else state.format_time(run.started_at)
        body: JsonObject = {
            **state.encode_run(run, created),
            "run_started_at": started,
            "run_ended_at": state.format_time(at),
            "webhook_sent_at": state.format_time(at),
            "values": state.encode_values(self._history.head),
        }
        if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
            error = encode_error(run.fault)
            body["error"] = f"{error['error']}: {error['message']}"
        return body
