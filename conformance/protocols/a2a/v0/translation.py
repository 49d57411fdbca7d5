"""Conversion between the JSON-RPC messages of A2A 0.3 and those of 1.0, for probes that both versions share.

Invalid members are passed through, because the messages have been validated already.
"""

from collections.abc import Mapping
from typing import Any, Final

from babelgate.conformance.wire.exchange import as_list, as_object, dig

METHODS: Final[Mapping[str, str]] = {
    "SendMessage": "message/send",
    "SendStreamingMessage": "message/stream",
    "GetTask": "tasks/get",
    "CancelTask": "tasks/cancel",
    "SubscribeToTask": "tasks/resubscribe",
    "CreateTaskPushNotificationConfig": "tasks/pushNotificationConfig/set",
    "GetTaskPushNotificationConfig": "tasks/pushNotificationConfig/get",
    "ListTaskPushNotificationConfigs": "tasks/pushNotificationConfig/list",
    "DeleteTaskPushNotificationConfig": "tasks/pushNotificationConfig/delete",
    "GetExtendedAgentCard": "agent/getAuthenticatedExtendedCard",
}


def method_of(operation: str) -> str:
    return METHODS.get(operation, operation)


# From 1.0


def params_of(operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
    match operation:
        case "SendMessage" | "SendStreamingMessage":
            return _send_params(params)
        case "CreateTaskPushNotificationConfig":
            config = {name: value for name, value in params.items() if name != "taskId"}
            return {"taskId": params.get("taskId"), "pushNotificationConfig": config_to(config)}
        case "GetTaskPushNotificationConfig" | "DeleteTaskPushNotificationConfig":
            return {"id": params.get("taskId"), "pushNotificationConfigId": params.get("id")}
        case "ListTaskPushNotificationConfigs":
            return {"id": params.get("taskId")}
        case _:
            return dict(params)


def _send_params(params: Mapping[str, Any]) -> dict[str, Any]:
    body = dict(params)
    if as_object(params.get("message")) is not None:
        body["message"] = _message_to(params["message"])
    if (settings := as_object(params.get("configuration"))) is not None:
        configuration = dict(settings)
        if "returnImmediately" in configuration:
            configuration["blocking"] = not configuration.pop("returnImmediately")
        if (config := configuration.pop("taskPushNotificationConfig", None)) is not None:
            configuration["pushNotificationConfig"] = config_to(config)
        body["configuration"] = configuration
    return body


def _message_to(message: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"kind": "message", **message}
    if "role" in body:
        body["role"] = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}.get(str(body["role"]), body["role"])
    if isinstance(body.get("parts"), list):  # Otherwise it is intentionally invalid.
        body["parts"] = [_part_to(as_object(part) or {}) for part in as_list(body["parts"])]
    return body


def _part_to(part: Mapping[str, Any]) -> dict[str, Any]:
    rest = {"metadata": part["metadata"]} if "metadata" in part else {}
    file = {new: part[old] for old, new in (("filename", "name"), ("mediaType", "mimeType")) if old in part}
    if "raw" in part:
        return {"kind": "file", "file": {"bytes": part["raw"], **file}, **rest}
    if "url" in part:
        return {"kind": "file", "file": {"uri": part["url"], **file}, **rest}
    kind = next((name for name in ("text", "data") if name in part), None)
    return {**({"kind": kind} if kind else {}), **part}


def config_to(config: Mapping[str, Any]) -> dict[str, Any]:
    body = dict(config)
    if (auth_settings := as_object(body.get("authentication"))) is not None:
        authentication = dict(auth_settings)
        authentication["schemes"] = [authentication.pop("scheme", "")]
        body["authentication"] = authentication
    return body


# To 1.0


def result_of(operation: str, result: Any) -> Any:
    match operation:
        case "SendMessage":
            return {"message": _message_of(result)} if dig(result, "kind") == "message" else {"task": task_of(result)}
        case "GetTask" | "CancelTask":
            return task_of(result)
        case "CreateTaskPushNotificationConfig" | "GetTaskPushNotificationConfig":
            return _config_of(result)
        case "ListTaskPushNotificationConfigs":
            return {"configs": [_config_of(each) for each in as_list(result)]}
        case _:
            return result


def event_of(result: Any) -> Any:
    """Return the StreamResponse of 1.0 for the result in a stream event of 0.3, or None for an invalid one. Status
    updates keep the member `final`, which 1.0 does not have."""
    match dig(result, "kind"):
        case "task":
            return {"task": task_of(result)}
        case "message":
            return {"message": _message_of(result)}
        case "status-update":
            return {"statusUpdate": _with_status(result)}
        case "artifact-update":
            artifact = as_object(dig(result, "artifact"))
            return {"artifactUpdate": {**result, "artifact": _with_parts(artifact or {})}}
        case _:
            return None


def task_of(task: Any) -> Any:
    if (members := as_object(task)) is None:
        return task
    converted = _with_status(members)
    if "artifacts" in members:
        converted["artifacts"] = [_with_parts(as_object(each) or {}) for each in as_list(members["artifacts"])]
    if "history" in members:
        converted["history"] = [_message_of(each) for each in as_list(members["history"])]
    return converted


def _with_status(carrier: Mapping[str, Any]) -> dict[str, Any]:
    status = dict(as_object(carrier.get("status")) or {})
    if isinstance(state := status.get("state"), str) and not state.startswith("TASK_STATE_"):
        status["state"] = f"TASK_STATE_{state.upper().replace('-', '_')}"
    if "message" in status:
        status["message"] = _message_of(status["message"])
    return {**carrier, "status": status}


def _message_of(message: Any) -> Any:
    if (members := as_object(message)) is None:
        return message
    converted = _with_parts(members)
    converted["role"] = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}.get(str(members.get("role")), members.get("role"))
    return converted


def _with_parts(carrier: Mapping[str, Any]) -> dict[str, Any]:
    return {**carrier, "parts": [_part_of(each) for each in as_list(carrier.get("parts"))]}


def _part_of(part: Any) -> Any:
    if dig(part, "kind") != "file":
        return part
    file = as_object(dig(part, "file")) or {}
    names = {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"}
    return {**part, **{names.get(name, name): value for name, value in file.items()}}


def _config_of(config: Any) -> Any:
    inner = as_object(dig(config, "pushNotificationConfig"))
    if inner is None:
        return config
    converted = {**inner, "taskId": dig(config, "taskId")}
    schemes = as_list(dig(inner, "authentication", "schemes"))
    if schemes:
        converted["authentication"] = {"scheme": schemes[0], "credentials": dig(inner, "authentication", "credentials")}
    return converted
