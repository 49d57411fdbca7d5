"""Dialect of A2A 0.3 in REST (`/v1/…`): ProtoJSON of the protocol buffer `a2a.v1`, which both official SDKs implement.

It differs from the JSON-RPC types of the same version: `content`, `ROLE_USER`, `TASK_STATE_CANCELLED`, one-of wrappers,
no `kind`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from babelgate.adapters.a2a.codec import v0_3, v1_0
from babelgate.adapters.a2a.codec.dialect import DataRule
from babelgate.adapters.a2a.codec.v0_3 import object_data
from babelgate.adapters.a2a.wire import v0_3 as w
from babelgate.adapters.a2a.wire.requests import Push
from babelgate.adapters.a2a.wire.task import StatusUpdate
from babelgate.canonical import DataPart, FilePart, TaskState, TextPart
from babelgate.canonical.value import JsonObject

STATES: Final = {**v1_0.STATES, TaskState.CANCELLED: "TASK_STATE_CANCELLED"}


class Codec(v0_3.Codec):
    """Dialect of A2A 0.3 in REST."""

    name: ClassVar = "0.3-rest"
    states: ClassVar = STATES
    roles: ClassVar = ("ROLE_USER", "ROLE_AGENT")
    parts_key: ClassVar = "content"
    has_kind: ClassVar = False
    passes_unknown: ClassVar = False  # the 0.3 SDK parses strictly
    data_rule: ClassVar[DataRule] = "wrapped"

    def encode_part(self, part: TextPart | DataPart | FilePart) -> JsonObject:
        match part:
            case TextPart():
                return {"text": part.text}
            case DataPart():
                # `a2a.v1.DataPart.data`: an object within an object.
                data, metadata = object_data(part)
                encoded: JsonObject = {"data": {"data": data}}
                return {**encoded, "metadata": metadata} if metadata else encoded
            case FilePart():
                # NB: base64 twice. The official SDKs put the base64 text of the JSON-RPC types into the bytes field of
                # the protocol buffer, and ProtoJSON encodes that again; their clients fail on bytes encoded once.
                file: JsonObject = (
                    {"fileWithUri": self.file_url(part)}
                    if part.inline is None
                    # a2a-sdk 0.3.26 and the 0.3 side of 1.3.0.
                    else {"fileWithBytes": self.encode_base64(self.encode_base64(part.inline).encode())}
                )
                if part.media_type is not None:
                    file["mimeType"] = part.media_type
                if part.name is not None:
                    file["name"] = part.name
                return {"file": file}

    def wrap(self, name: str, payload: JsonObject) -> JsonObject:
        return {name: payload}

    def _status_update(self, update: StatusUpdate) -> JsonObject:
        encoded = super()._status_update(update)
        if not encoded["final"]:  # ProtoJSON omits false
            del encoded["final"]
        return encoded

    def encode_push(self, push: Push) -> JsonObject:
        # `a2a.v1.TaskPushNotificationConfig.name`: a resource name, where JSON-RPC has two ids.
        name = f"tasks/{push.task_id}/pushNotificationConfigs/{push.config_id}"
        return {"name": name, "pushNotificationConfig": self.push_config(push)}

    def encode_pushes(self, pushes: Sequence[Push], next_token: str) -> Any:
        # `a2a.v1.ListTaskPushNotificationConfigResponse`; JSON-RPC of the same version has a bare array.
        return {"configs": [self.encode_push(push) for push in pushes], "nextPageToken": next_token}

    def is_blocking(self, request: w.MessageSendParams) -> bool:
        """Return True if the response to a send waits until the task stops: if `blocking` is true, or if there is no
        configuration.

        ProtoJSON omits false, and the 0.3 SDK always writes a configuration. So a configuration without `blocking`
        means false.
        """
        # a2a-sdk 0.3.26 answers such a send at once; the 0.3 side of 1.3.0 waits.
        return request.configuration is None or bool(request.configuration.blocking)
