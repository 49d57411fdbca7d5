"""Conversion between the REST messages of A2A 0.3 and the form of 1.0.

The specification of 0.3 defines the paths and leaves the JSON open. The JSON can have the form of JSON-RPC, or that of
the protocol buffer `a2a.v1`, whose annotations define the paths. The Python SDKs write the second form, so requests are
written in it, and responses are read in both. Invalid members are passed through, because the messages have been
validated already.
"""

import base64
from collections.abc import Mapping
from typing import Any

from babelgate.conformance.protocols.a2a.v0 import translation
from babelgate.conformance.wire.exchange import as_list, as_object, dig

# From 1.0


def send_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of message:send and message:stream in 0.3. It always has `blocking`, because its default is
    undefined."""
    body = dict(params)
    if (caller_message := as_object(params.get("message"))) is not None:
        body["message"] = _message_to(caller_message)
    configuration = dict(as_object(params.get("configuration")) or {})
    configuration["blocking"] = not configuration.pop("returnImmediately", False)
    if (config := configuration.pop("taskPushNotificationConfig", None)) is not None:
        configuration["pushNotification"] = translation.config_to(config)
    return {**body, "configuration": configuration}


def config_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body that creates a push notification config in 0.3: `parent`, `configId` and the config, with names
    as the protocol buffer defines them."""
    config = translation.config_to({name: value for name, value in params.items() if name != "taskId"})
    parent, id = f"tasks/{params.get('taskId')}", str(config.get("id", ""))
    name = f"{parent}/pushNotificationConfigs/{id}"
    return {"parent": parent, "configId": id, "config": {"name": name, "pushNotificationConfig": config}}


def _message_to(message: Mapping[str, Any]) -> dict[str, Any]:
    body = {name: value for name, value in message.items() if name != "parts"}
    if "parts" in message:
        parts = message["parts"]
        body["content"] = (
            [_part_to(as_object(part) or {}) for part in as_list(parts)] if isinstance(parts, list) else parts
        )
    return body


def _part_to(part: Mapping[str, Any]) -> dict[str, Any]:
    rest = {"metadata": part["metadata"]} if "metadata" in part else {}
    file = {new: part[old] for old, new in (("filename", "name"), ("mediaType", "mimeType")) if old in part}
    if "raw" in part:
        # The content is in base64 twice, as in the SDKs: their bytes field holds the base64 text of the JSON types.
        twice = base64.b64encode(str(part["raw"]).encode()).decode()
        return {"file": {"fileWithBytes": twice, **file}, **rest}
    if "url" in part:
        return {"file": {"fileWithUri": part["url"], **file}, **rest}
    return {"data": {"data": part["data"]}, **rest} if "data" in part else dict(part)


# To 1.0


def result_of(operation: str, result: Any) -> Any:
    match operation:
        case "SendMessage":
            if "kind" in (as_object(result) or {}):
                return translation.result_of(operation, result)
            return event_of(result)
        case "GetTask" | "CancelTask":
            return task_of(result)
        case "CreateTaskPushNotificationConfig" | "GetTaskPushNotificationConfig":
            return _config_of(result)
        case "ListTaskPushNotificationConfigs":
            listed = as_list(result) or as_list(dig(result, "configs"))
            return {"configs": [_config_of(each) for each in listed]}
        case _:
            return result


def event_of(event: Any) -> Any:
    """Return the StreamResponse of 1.0 for an event in either form of JSON, or None for an invalid event."""
    members = as_object(event) or {}
    if "kind" in members:
        return translation.event_of(members)
    if "task" in members:
        return {"task": task_of(members["task"])}
    if "message" in members:
        return {"message": _message_of(members["message"])}
    if (update := as_object(members.get("statusUpdate"))) is not None:
        return {"statusUpdate": _with_status(update)}
    if (update := as_object(members.get("artifactUpdate"))) is not None:
        return {"artifactUpdate": {**update, "artifact": _with_parts(as_object(update.get("artifact")) or {})}}
    return None


def task_of(task: Any) -> Any:
    if (members := as_object(task)) is None:
        return task
    if "kind" in members:
        return translation.task_of(members)
    converted = _with_status(members)
    if "artifacts" in members:
        converted["artifacts"] = [_with_parts(as_object(each) or {}) for each in as_list(members["artifacts"])]
    if "history" in members:
        converted["history"] = [_message_of(each) for each in as_list(members["history"])]
    return converted


def _with_status(carrier: Mapping[str, Any]) -> dict[str, Any]:
    status = dict(as_object(carrier.get("status")) or {})
    if status.get("state") == "TASK_STATE_CANCELLED":  # Only this version spells it with two Ls.
        status["state"] = "TASK_STATE_CANCELED"
    if "message" in status:
        status["message"] = _message_of(status["message"])
    return {**carrier, "status": status}


def _message_of(message: Any) -> Any:
    if (members := as_object(message)) is None:
        return message
    converted = {name: value for name, value in members.items() if name != "content"}
    return {**converted, "parts": [_part_of(each) for each in as_list(members.get("content"))]}


def _with_parts(carrier: Mapping[str, Any]) -> dict[str, Any]:
    return {**carrier, "parts": [_part_of(each) for each in as_list(carrier.get("parts"))]}


def _part_of(part: Any) -> Any:
    if (members := as_object(part)) is None:
        return part
    rest = {"metadata": members["metadata"]} if "metadata" in members else {}
    if (file := as_object(members.get("file"))) is not None:
        names = {"fileWithUri": "url", "name": "filename", "mimeType": "mediaType"}
        converted = {names[name]: value for name, value in file.items() if name in names}
        if "fileWithBytes" in file:
            converted["raw"] = _once(str(file["fileWithBytes"]))
        return {**converted, **rest}
    if (data := as_object(members.get("data"))) is not None:
        return {"data": data.get("data"), **rest}
    return part


def _once(encoded: str) -> str:
    """Return content that is encoded in base64 twice, as the SDKs do, encoded once. Return any other content
    unchanged."""
    try:
        inner = base64.b64decode(encoded, validate=True)
        base64.b64decode(inner, validate=True)
    except ValueError:
        return encoded
    return inner.decode()


def _config_of(config: Any) -> Any:
    name = str(dig(config, "name") or "")
    inner = as_object(dig(config, "pushNotificationConfig"))
    if inner is None or not name:
        return translation.result_of("GetTaskPushNotificationConfig", config)
    segments = name.split("/")
    task, id = (segments[1], segments[3]) if len(segments) == 4 else ("", "")
    merged = {**inner, "id": inner.get("id") or id, "taskId": task}
    return translation.result_of("GetTaskPushNotificationConfig", {"taskId": task, "pushNotificationConfig": merged})
