"""Translation between the ProtoJSON of A2A 0.3, which its REST binding uses, and A2A 1.0."""

import base64
from collections.abc import Mapping
from typing import Any, cast

# To 1.0


def message_in(message: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in message.items() if name != "content"}
    if "content" in message:
        content: Any = message["content"]
        is_list = isinstance(content, list)
        result["parts"] = [part_in(each) for each in cast("list[Any]", content)] if is_list else content
    return result


def part_in(part: dict[str, Any]) -> dict[str, Any]:
    if "data" in part:
        return {"data": part["data"]["data"]}
    if "file" not in part:
        return part
    file: dict[str, Any] = part["file"]
    result = {new: file[old] for old, new in (("name", "filename"), ("mimeType", "mediaType")) if old in file}
    if "fileWithUri" in file:
        return {**result, "url": file["fileWithUri"]}
    return {**result, "raw": base64.b64decode(file["fileWithBytes"]).decode()}


# From 1.0


def task_out(task: Mapping[str, Any]) -> dict[str, Any]:
    result = {**task, "status": status_out(task["status"])}
    if "artifacts" in task:
        result["artifacts"] = [artifact_out(each) for each in task["artifacts"]]
    if "history" in task:
        result["history"] = [message_out(each) for each in task["history"]]
    return result


def status_out(status: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(status)
    result["state"] = str(result["state"]).replace("CANCELED", "CANCELLED")
    if "message" in result:
        result["message"] = message_out(result["message"])
    return result


def message_out(message: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in message.items() if name not in ("parts", "kind")}
    return {**result, "content": [part_out(each) for each in message["parts"]]}


def artifact_out(artifact: Mapping[str, Any]) -> dict[str, Any]:
    return {**artifact, "parts": [part_out(each) for each in artifact["parts"]]}


def part_out(part: Mapping[str, Any]) -> dict[str, Any]:
    if "data" in part:
        return {"data": {"data": part["data"]}}
    if "text" in part:
        return {"text": part["text"]}
    file = {new: part[old] for old, new in (("filename", "name"), ("mediaType", "mimeType")) if old in part}
    if "url" in part:
        return {"file": {**file, "fileWithUri": part["url"]}}
    return {"file": {**file, "fileWithBytes": base64.b64encode(part["raw"].encode()).decode()}}


def event_out(event: Mapping[str, Any], *, is_final: bool) -> dict[str, Any]:
    if "task" in event:
        return {"task": task_out(event["task"])}
    if "message" in event:
        return {"message": message_out(event["message"])}
    if "artifactUpdate" in event:
        update = event["artifactUpdate"]
        return {"artifactUpdate": {**update, "artifact": artifact_out(update["artifact"])}}
    update = event["statusUpdate"]
    result = {**update, "status": status_out(update["status"])}
    return {"statusUpdate": {**result, "final": True} if is_final else result}


def config_out(config: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in config.items() if name != "taskId"}
    if authentication := result.get("authentication"):
        result["authentication"] = {"schemes": [authentication["scheme"]]}
    return {
        "name": f"tasks/{config['taskId']}/pushNotificationConfigs/{config['id']}",
        "pushNotificationConfig": result,
    }
