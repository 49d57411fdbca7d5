"""Encoding of A2A push notifications: the records of a task become bodies in the version in which the webhook was
registered."""

from collections.abc import Iterable, Mapping
from typing import Literal

from babelgate.adapters.a2a.codec import v0_3, v1_0
from babelgate.adapters.a2a.write.task_events import EventWriter
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.canonical import Record, Task, Webhook
from babelgate.canonical.event import RunCreated

TOKEN_HEADER = "X-A2A-Notification-Token"


class Writer:
    """Writer of push notifications of 1.0. Each body is a StreamResponse with one event, of which the first is the task
    (specification 1.0, 4.3.3)."""

    scope: Literal["task", "thread"] = "task"
    once = False
    media_type = "application/a2a+json"

    def __init__(self, webhook: Webhook, task: Task, context_id: str) -> None:
        self._webhook = webhook
        self._writer = EventWriter(task, context_id)
        self._codec = v1_0.Codec(str(webhook.config.get("base_url") or ""), task.agent)
        self._shown = False

    def headers(self) -> Mapping[str, str]:
        headers = {"Content-Type": self.media_type}
        config = self._webhook.config
        if config.get("token"):
            # a2a-sdk 0.3.26 and 1.3.0 send it; specification 1.0 describes `authentication` alone.
            headers[TOKEN_HEADER] = config["token"]
        if config.get("schemes") and config.get("credentials"):
            # Specification 1.0, 4.3.3. a2a-sdk 0.3.26 sends the token and leaves this out.
            headers["Authorization"] = f"{config['schemes'][0]} {config['credentials']}"
        return headers

    def write(self, record: Record) -> Iterable[bytes | LargeJson]:
        updates = self._writer.write(record)
        if not self._shown and isinstance(record.event, RunCreated):
            self._shown = True
            # A StreamResponse of its first kind, so that the receiver knows the task.
            return [encode(self._codec.encode_update(self._writer.snapshot()))]
        return [encode(self._codec.encode_update(update)) for update in updates]


class Writer_0_3(Writer):
    """Writer of push notifications of 0.3. Each body is the whole task after an event that changed it, as the SDK of
    0.3 sends it while streaming."""

    media_type = "application/json"

    def __init__(self, webhook: Webhook, task: Task, context_id: str) -> None:
        super().__init__(webhook, task, context_id)
        self._codec = v0_3.Codec(str(webhook.config.get("base_url") or ""), task.agent)

    def write(self, record: Record) -> Iterable[bytes | LargeJson]:
        if self._writer.write(record) or isinstance(record.event, RunCreated):
            # a2a-sdk 0.3.26: the body is the task (`kind` and all), not the event.
            return [encode(self._codec.encode_task(self._writer.snapshot()))]
        return []
