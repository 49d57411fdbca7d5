"""Schemas of A2A's published types, for the responses of the gateway.

They are written by hand, and stricter than clients: no member that the types do not name. So a field in the wrong place
fails here and not in a client.
"""

from functools import cache
from typing import Any, Literal

from jsonschema import Draft202012Validator

Form = Literal["1.0", "0.3", "0.3-rest"]

TEXT = {"type": "string"}
NAME = {"type": "string", "minLength": 1}
FLAG = {"type": "boolean"}
ANY: dict[str, Any] = {}
MAP = {"type": "object"}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}
BASE64 = {"type": "string", "pattern": r"^[A-Za-z0-9+/]*={0,2}$"}

Schema = dict[str, Any]


def obj(required: dict[str, Any], optional: dict[str, Any] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def items(item: Schema, at_least: int = 0) -> Schema:
    return {"type": "array", "items": item, "minItems": at_least}


def const(value: str) -> Schema:
    return {"const": value}


STATES_0_3 = ("submitted", "working", "input-required", "completed", "canceled", "failed", "rejected", "auth-required")
STATES_1_0 = tuple(
    f"TASK_STATE_{name}"
    for name in (
        "SUBMITTED",
        "WORKING",
        "COMPLETED",
        "FAILED",
        "CANCELED",
        "INPUT_REQUIRED",
        "REJECTED",
        "AUTH_REQUIRED",
    )
)
STATES = {
    "0.3": STATES_0_3,
    "1.0": STATES_1_0,
    "0.3-rest": tuple(name.replace("CANCELED", "CANCELLED") for name in STATES_1_0),
}


def _part(form: Form) -> Schema:
    if form == "1.0":
        more: Schema = {"metadata": MAP, "filename": TEXT, "mediaType": TEXT}
        content = {"text": TEXT, "raw": BASE64, "url": NAME, "data": ANY}
        return {"oneOf": [obj({name: schema}, more) for name, schema in content.items()]}
    about = {"name": TEXT, "mimeType": TEXT}
    meta = {"metadata": MAP}
    if form == "0.3":
        files = [obj({"bytes": BASE64}, about), obj({"uri": NAME}, about)]
        return {
            "oneOf": [
                obj({"kind": const("text"), "text": TEXT}, meta),
                obj({"kind": const("file"), "file": {"oneOf": files}}, meta),
                obj({"kind": const("data"), "data": MAP}, meta),
            ]
        }
    files = [obj({"fileWithBytes": BASE64}, about), obj({"fileWithUri": NAME}, about)]
    return {
        "oneOf": [
            obj({"text": TEXT}, meta),
            obj({"file": {"oneOf": files}}, meta),
            obj({"data": obj({"data": MAP})}, meta),
        ]
    }


def _kind(form: Form, name: str) -> Schema:
    return {"kind": const(name)} if form == "0.3" else {}


def _message(form: Form) -> Schema:
    roles = ["user", "agent"] if form == "0.3" else ["ROLE_USER", "ROLE_AGENT"]
    parts = "content" if form == "0.3-rest" else "parts"
    more: Schema = {"contextId": NAME, "taskId": NAME, "metadata": MAP, "extensions": items(TEXT)}
    if form != "0.3-rest":
        more["referenceTaskIds"] = items(TEXT)
    required = {"messageId": NAME, "role": {"enum": roles}, parts: items(_part(form), 1)}
    return obj({**_kind(form, "message"), **required}, more)


def _artifact(form: Form) -> Schema:
    more = {"name": TEXT, "description": TEXT, "metadata": MAP, "extensions": items(TEXT)}
    return obj({"artifactId": NAME, "parts": items(_part(form), 1)}, more)


def _status(form: Form) -> Schema:
    return obj({"state": {"enum": list(STATES[form])}, "timestamp": TIME}, {"message": _message(form)})


def _task(form: Form) -> Schema:
    return obj(
        {**_kind(form, "task"), "id": NAME, "contextId": NAME, "status": _status(form)},
        {"artifacts": items(_artifact(form), 1), "history": items(_message(form), 1), "metadata": MAP},
    )


def _status_update(form: Form) -> Schema:
    required = {**_kind(form, "status-update"), "taskId": NAME, "contextId": NAME, "status": _status(form)}
    more: Schema = {"metadata": MAP}
    if form == "0.3":
        required["final"] = FLAG
    if form == "0.3-rest":
        more["final"] = {"const": True}
    return obj(required, more)


def _artifact_update(form: Form) -> Schema:
    required = {**_kind(form, "artifact-update"), "taskId": NAME, "contextId": NAME, "artifact": _artifact(form)}
    return obj(required, {"append": FLAG, "lastChunk": FLAG, "metadata": MAP})


def _event(form: Form) -> Schema:
    kinds = {"task": _task(form), "statusUpdate": _status_update(form), "artifactUpdate": _artifact_update(form)}
    if form == "0.3":
        return {"oneOf": list(kinds.values())}
    return {"oneOf": [obj({name: schema}) for name, schema in kinds.items()]}


def _sent(form: Form) -> Schema:
    return _task(form) if form == "0.3" else obj({"task": _task(form)})


def _reply(form: Form) -> Schema:
    """Return the schema of the result of a send request that is answered by a message. The event with a message has the
    same schema."""
    return _message(form) if form == "0.3" else obj({"message": _message(form)})


def _page(form: Form) -> Schema:
    size = {"type": "integer", "minimum": 0}
    return obj({"tasks": items(_task(form)), "nextPageToken": TEXT, "pageSize": size, "totalSize": size})


def _push(form: Form) -> Schema:
    if form == "1.0":
        auth = obj({"scheme": NAME}, {"credentials": TEXT})
        return obj({"id": NAME, "taskId": NAME, "url": NAME}, {"token": TEXT, "authentication": auth})
    auth = obj({"schemes": items(TEXT)}, {"credentials": TEXT})
    config = obj({"id": NAME, "url": NAME}, {"token": TEXT, "authentication": auth})
    name: Schema = (
        {"taskId": NAME} if form == "0.3" else {"name": {"pattern": "^tasks/[^/]+/pushNotificationConfigs/[^/]+$"}}
    )
    return obj({**name, "pushNotificationConfig": config})


def _pushes(form: Form) -> Schema:
    if form == "0.3":
        return items(_push(form))
    return obj({"configs": items(_push(form))}, {"nextPageToken": TEXT})


def _skill(form: Form) -> Schema:
    required = {"id": NAME, "name": NAME, "description": NAME, "tags": items(NAME, 1)}
    more = {"examples": items(TEXT), "inputModes": items(TEXT), "outputModes": items(TEXT)}
    return obj(required, more)


def _card(form: Form) -> Schema:
    shared: Schema = {
        "name": NAME,
        "description": NAME,
        "version": NAME,
        "defaultInputModes": items(NAME, 1),
        "defaultOutputModes": items(NAME, 1),
        "skills": items(_skill(form), 1),
    }
    more: Schema = {"documentationUrl": TEXT, "iconUrl": TEXT}
    if form == "1.0":
        interface = obj({"url": NAME, "protocolBinding": NAME, "protocolVersion": {"pattern": r"^\d+\.\d+(\.\d+)?$"}})
        api_key = obj({"location": {"enum": ["query", "header", "cookie"]}, "name": NAME})
        schemes = {
            "oneOf": [
                obj({"apiKeySecurityScheme": api_key}),
                obj({"httpAuthSecurityScheme": obj({"scheme": NAME}, {"bearerFormat": TEXT})}),
                obj({"openIdConnectSecurityScheme": obj({"openIdConnectUrl": NAME})}),
            ]
        }
        requirement = obj({"schemes": {"type": "object", "additionalProperties": obj({"list": items(TEXT)})}})
        capabilities = obj(
            {}, {"streaming": FLAG, "pushNotifications": FLAG, "extendedAgentCard": FLAG, "extensions": ANY}
        )
        more |= {
            "securitySchemes": {"type": "object", "additionalProperties": schemes},
            "securityRequirements": items(requirement),
        }
        return obj({**shared, "supportedInterfaces": items(interface, 1), "capabilities": capabilities}, more)
    interface = obj({"url": NAME, "transport": {"enum": ["JSONRPC", "HTTP+JSON", "GRPC"]}})
    schemes = {
        "oneOf": [
            obj({"type": const("apiKey"), "in": {"enum": ["cookie", "header", "query"]}, "name": NAME}),
            obj({"type": const("http"), "scheme": NAME}, {"bearerFormat": TEXT}),
            obj({"type": const("openIdConnect"), "openIdConnectUrl": NAME}),
        ]
    }
    capabilities = obj(
        {}, {"streaming": FLAG, "pushNotifications": FLAG, "stateTransitionHistory": FLAG, "extensions": ANY}
    )
    more |= {
        "preferredTransport": TEXT,
        "additionalInterfaces": items(interface),
        "securitySchemes": {"type": "object", "additionalProperties": schemes},
        "security": items({"type": "object", "additionalProperties": items(TEXT)}),
        "supportsAuthenticatedExtendedCard": FLAG,
    }
    return obj({**shared, "protocolVersion": NAME, "url": NAME, "capabilities": capabilities}, more)


def _error(form: Form) -> Schema:
    info = obj(
        {"@type": const("type.googleapis.com/google.rpc.ErrorInfo"), "reason": NAME, "domain": NAME, "metadata": MAP}
    )
    violation = obj({"field": TEXT, "description": NAME})
    bad = obj({"@type": const("type.googleapis.com/google.rpc.BadRequest"), "fieldViolations": items(violation, 1)})
    required = {"code": {"type": "integer"}, "message": NAME}
    return obj({**required, "data": items({"oneOf": [info, bad]}, 1)} if form == "1.0" else required)


def _rest_error(form: Form) -> Schema:
    if form != "1.0":
        return obj({"message": NAME, "code": {"type": "integer"}, "type": {"pattern": "^[A-Z][A-Za-z]+Error$"}})
    error = _error(form)["properties"]
    code = {"type": "integer", "minimum": 400, "maximum": 599}
    return obj({"error": obj({"code": code, "status": NAME, "message": NAME, "details": error["data"]})})


_SCHEMAS = {
    "message": _message,
    "task": _task,
    "event": _event,
    "sent": _sent,
    "reply": _reply,
    "page": _page,
    "push": _push,
    "pushes": _pushes,
    "card": _card,
    "error": _error,
    "rest-error": _rest_error,
}


@cache
def _validator(name: str, form: Form) -> Draft202012Validator:
    return Draft202012Validator(_SCHEMAS[name](form))


def check(name: str, form: Form, value: Any) -> Any:
    """Return the value. Raises ValidationError if it does not match the schema of this name."""
    _validator(name, form).validate(value)  # pyright: ignore[reportUnknownMemberType]
    return value
