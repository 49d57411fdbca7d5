"""The JSON of REST in 0.3, in the words of 1.0 and back.

The specification says which paths there are and leaves open which JSON: that of the types, as in JSON-RPC, or that of
the protocol buffer `a2a.v1`, from whose annotations the paths come. The SDKs for Python write the latter, so requests
are written in it; answers are read in both. What is not as specified is left as it is: it has been held against the
schemas before.
"""

import base64
from collections.abc import Mapping
from typing import Any

from babelgate.conformance.protocols.a2a.v0 import translation
from babelgate.conformance.wire.exchange import as_list, as_object, dig

# From 1.0


def send_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Of message:send and message:stream. It is always said whether to wait: what holds if it is not is left open."""
    made = dict(params)
    if (given := as_object(params.get("message"))) is not None:
        made["message"] = _message_to(given)
    configuration = dict(as_object(params.get("configuration")) or {})
    configuration["blocking"] = not configuration.pop("returnImmediately", False)
    if (config := configuration.pop("taskPushNotificationConfig", None)) is not None:
        configuration["pushNotification"] = translation.config_to(config)
    return {**made, "configuration": configuration}


def config_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The body that makes a push notification config, with the names that the protocol buffer puts into the path."""
    config = translation.config_to({name: value for name, value in params.items() if name != "taskId"})
    parent, id = f"tasks/{params.get('taskId')}", str(config.get("id", ""))
    name = f"{parent}/pushNotificationConfigs/{id}"
    return {"parent": parent, "configId": id, "config": {"name": name, "pushNotificationConfig": config}}


def _message_to(message: Mapping[str, Any]) -> dict[str, Any]:
    made = {name: value for name, value in message.items() if name != "parts"}
    if "parts" in message:
        parts = message["parts"]
        made["content"] = (
            [_part_to(as_object(part) or {}) for part in as_list(parts)] if isinstance(parts, list) else parts
        )
    return made


def _part_to(part: Mapping[str, Any]) -> dict[str, Any]:
    rest = {"metadata": part["metadata"]} if "metadata" in part else {}
    file = {new: part[old] for old, new in (("filename", "name"), ("mediaType", "mimeType")) if old in part}
    if "raw" in part:
        # Twice in base64, as the SDKs have it: their field for bytes holds the base64 text of the JSON types.
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
    """A StreamResponse of either JSON, or None for what is none."""
    given = as_object(event) or {}
    if "kind" in given:
        return translation.event_of(given)
    if "task" in given:
        return {"task": task_of(given["task"])}
    if "message" in given:
        return {"message": _message_of(given["message"])}
    if (update := as_object(given.get("statusUpdate"))) is not None:
        return {"statusUpdate": _with_status(update)}
    if (update := as_object(given.get("artifactUpdate"))) is not None:
        return {"artifactUpdate": {**update, "artifact": _with_parts(as_object(update.get("artifact")) or {})}}
    return None


def task_of(task: Any) -> Any:
    if (given := as_object(task)) is None:
        return task
    if "kind" in given:
        return translation.task_of(given)
    made = _with_status(given)
    if "artifacts" in given:
        made["artifacts"] = [_with_parts(as_object(each) or {}) for each in as_list(given["artifacts"])]
    if "history" in given:
        made["history"] = [_message_of(each) for each in as_list(given["history"])]
    return made


def _with_status(given: Mapping[str, Any]) -> dict[str, Any]:
    status = dict(as_object(given.get("status")) or {})
    if status.get("state") == "TASK_STATE_CANCELLED":  # two Ls in this revision alone
        status["state"] = "TASK_STATE_CANCELED"
    if "message" in status:
        status["message"] = _message_of(status["message"])
    return {**given, "status": status}


def _message_of(message: Any) -> Any:
    if (given := as_object(message)) is None:
        return message
    made = {name: value for name, value in given.items() if name != "content"}
    return {**made, "parts": [_part_of(each) for each in as_list(given.get("content"))]}


def _with_parts(given: Mapping[str, Any]) -> dict[str, Any]:
    return {**given, "parts": [_part_of(each) for each in as_list(given.get("parts"))]}


def _part_of(part: Any) -> Any:
    if (given := as_object(part)) is None:
        return part
    rest = {"metadata": given["metadata"]} if "metadata" in given else {}
    if (file := as_object(given.get("file"))) is not None:
        names = {"fileWithUri": "url", "name": "filename", "mimeType": "mediaType"}
        made = {names[name]: value for name, value in file.items() if name in names}
        if "fileWithBytes" in file:
            made["raw"] = _once(str(file["fileWithBytes"]))
        return {**made, **rest}
    if (data := as_object(given.get("data"))) is not None:
        return {"data": data.get("data"), **rest}
    return part


def _once(encoded: str) -> str:
    """What is in base64 twice, as the SDKs write it, once; and what is in it once, as it is."""
    try:
        inner = base64.b64decode(encoded, validate=True)
        base64.b64decode(inner, validate=True)
    except ValueError:
        return encoded
    return inner.decode()


def _config_of(config: Any) -> Any:
    name = str(dig(config, "name") or "")
    given = as_object(dig(config, "pushNotificationConfig"))
    if given is None or not name:
        return translation.result_of("GetTaskPushNotificationConfig", config)
    segments = name.split("/")
    task, id = (segments[1], segments[3]) if len(segments) == 4 else ("", "")
    made = {**given, "id": given.get("id") or id, "taskId": task}
    return translation.result_of("GetTaskPushNotificationConfig", {"taskId": task, "pushNotificationConfig": made})
