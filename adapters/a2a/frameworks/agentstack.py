"""Dialect of agentstack-sdk 0.7.1, kagenti-adk 0.8.1 and beeai-sdk 0.3.7. Their extension URIs have different origins,
but the same paths."""

import json
from collections.abc import Mapping
from typing import Final

from babelgate.adapters.a2a.frameworks.framework import (
    DecodedContent,
    Framework,
    FrameworkQuestion,
    ToolUse,
    cite,
    describe_call,
    enum_schema,
    parse_json,
    text_parts,
)
from babelgate.adapters.kit.client.consent import is_yes
from babelgate.canonical import ReasoningPart, TextPart
from babelgate.canonical.json import as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject

EXTENSIONS: Final = "https://a2a-extensions.agentstack.beeai.dev/ui"
"""Beginning of the extension URIs that the gateway itself writes."""
TRAJECTORY: Final = "/ui/trajectory/v1"
CITATION: Final = "/ui/citation/v1"
STREAMING: Final = "/ui/streaming/v1"
"""Suffix of the URI of the extension for drafts. Like `TRAJECTORY` and `CITATION`, it ends a key of metadata. The value
under those two is an object in agentstack-sdk, and a list in kagenti-adk."""

_HOSTS: Final = ("a2a-extensions.beeai.dev", "a2a-extensions.agentstack.beeai.dev")
"""Hosts of the extension URIs on the cards of beeai-sdk and agentstack-sdk. Their agents send answers as the messages
of their status."""


# Content


def _read_trajectory(content: DecodedContent, value: Json, _: JsonObject) -> None:
    for entry in objects_in(value if isinstance(value, list) else [value]):
        title, text = as_text(entry.get("title")), as_text(entry.get("content"))
        name, _space, kind = title.rpartition(" ")
        # beeai-framework marks entries of inner agents.
        while name.startswith(("--> ", "<-- ")):
            name = name[4:]
        match kind:
            case "(request)" | "(response)" | "(error)" if content.is_marked:
                pass
            case "(request)" if name:
                content.tools.append(ToolUse(None, name, value=parse_json(text)))
            case "(response)" if name:
                content.tools.append(ToolUse(None, name, ended=True, value=parse_json(text)))
            case "(error)" if name:
                content.tools.append(ToolUse(None, name, ended=True, error=text or title))
            case _ if title.lower() == "thought":
                if not content.is_marked:
                    content.parts.append(ReasoningPart(text=text))
            case _ if title or text:
                if group := as_text(entry.get("group_id")):
                    content.groups.append((group, title or group))
                content.progress.append(TextPart(text=": ".join(filter(None, (title, text)))))
            case _:
                pass


def _read_citations(content: DecodedContent, value: Json, _: JsonObject) -> None:
    for citation in objects_in(value.get("citations") if isinstance(value, dict) else value):
        cite(content, citation, "start_index", "end_index", "url")


def _read_error(value: Json, _: JsonObject) -> tuple[str, JsonObject]:
    error = as_object(as_object(value).get("error"))
    inner = [as_text(each.get("message")) for each in objects_in(error.get("errors"))]
    return ": ".join(filter(None, (as_text(error.get("title")), as_text(error.get("message")), *inner))), {}


def is_trajectory(key: str) -> bool:
    """Return True if a key of metadata contains a trajectory: a list of the agent's thoughts, tool calls and progress
    reports."""
    return key.endswith(TRAJECTORY)


# Questions


def _read_form(key: str, form: JsonObject) -> list[FrameworkQuestion]:
    fields = {as_text(field.get("id")): field for field in objects_in(form.get("fields"))}
    kinds = {name: as_text(field.get("type")) for name, field in fields.items()}
    properties: JsonObject = {name: _field_schema(field) for name, field in fields.items()}
    schema: JsonObject = {"type": "object", "properties": properties}
    if required := [name for name, field in fields.items() if field.get("required") is True]:
        schema["required"] = required
    words = "\n".join(filter(None, (as_text(form.get("title")), as_text(form.get("description")))))
    answer_form: JsonObject = {"as": "values", "uri": key, "fields": kinds, "required": required, "words": True}
    answer_form["options"] = {name: _options(field) for name, field in fields.items() if _options(field)}
    return [FrameworkQuestion(text_parts(words or "The agent asks for a form."), None, form, schema, form=answer_form)]


def _field_schema(field: JsonObject) -> JsonObject:
    title: JsonObject = {"title": field["label"]} if as_text(field.get("label")) else {}
    options = list(_options(field))
    match field.get("type"):
        case "singleselect" if options:
            return {**title, "type": "string", "enum": options}
        case "multiselect" if options:
            return {**title, "type": "array", "items": {"type": "string", "enum": options}}
        case "checkbox":
            return {**title, "type": "boolean"}
        case "checkbox_group":
            boxes = {as_text(box.get("id")): {"type": "boolean"} for box in objects_in(field.get("fields"))}
            return {**title, "type": "object", "properties": boxes}
        case "date":
            return {**title, "type": "string", "format": "date"}
        case "file":
            return {**title, "type": "string", "format": "uri"}
        case _:
            return {**title, "type": "string"}


def _options(field: JsonObject) -> dict[str, str]:
    """Return the labels of the options that a field of a form offers, by option id."""
    return {as_text(option.get("id")): as_text(option.get("label")) for option in objects_in(field.get("options"))}


def _read_approval(key: str, request: JsonObject) -> list[FrameworkQuestion]:
    form: JsonObject = {"as": "decision", "uri": key, "words": True}
    schema = enum_schema("decision", "approve", "reject")
    return [FrameworkQuestion(_describe_request(request), None, request, schema, "approval", form)]


def _read_tool_call(key: str, request: JsonObject) -> list[FrameworkQuestion]:
    form: JsonObject = {"as": "action", "uri": key, "words": True}
    schema = enum_schema("action", "accept", "reject")
    return [FrameworkQuestion(_describe_request(request), None, request, schema, "approval", form)]


def _describe_request(request: JsonObject) -> tuple[TextPart, ...]:
    lines = (
        as_text(request.get("title")),
        as_text(request.get("description")),
        describe_call(request.get("name"), request.get("input")),
    )
    return (TextPart(text="\n".join(filter(None, lines)) or "The agent asks for an approval."),)


def _read_authorization(key: str, request: JsonObject) -> list[FrameworkQuestion]:
    form: JsonObject = {"as": "redirect_uri", "uri": key, "words": True}
    words = as_text(request.get("authorization_endpoint_url")) or "The agent asks for an authorization."
    return [FrameworkQuestion(text_parts(words), None, request, None, "auth", form)]


def _read_secrets(key: str, request: JsonObject) -> list[FrameworkQuestion]:
    demands = as_object(request.get("secret_demands"))
    properties: JsonObject = {name: {"type": "string"} for name in demands}
    schema: JsonObject = {"type": "object", "properties": properties, "required": list(properties)}
    form: JsonObject = {"as": "secrets", "uri": key, "names": list(properties), "words": True}
    if not demands:
        return []
    return [FrameworkQuestion(text_parts("The agent asks for secrets."), None, request, schema, "auth", form)]


# Answers


def _write_values(form: JsonObject, value: Json) -> JsonObject:
    """Return the caller's answer as the values of a form. A text that is not a JSON object fills the first required
    field, or else the first field."""
    kinds: Mapping[str, str] = form["fields"]
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _parse_object(value)
    if isinstance(value, dict):
        values: JsonObject = value
    else:
        names = [name for name in (*form["required"], *kinds) if kinds[name] not in ("file", "checkbox_group")]
        values = {names[0]: value} if names and value is not None else {}
    return {
        "values": {
            name: _field_value(kinds[name], as_object(form["options"].get(name)), values[name])
            for name in values
            if name in kinds
        }
    }


def _field_value(kind: str, options: JsonObject, value: Json) -> JsonObject:
    ids = {label.lower(): name for name, label in options.items()}
    match kind:
        case "checkbox":
            return {"type": kind, "value": is_yes(value)}
        case "singleselect":
            choice = str(value)
            return {"type": kind, "value": choice if choice in options else ids.get(choice.lower(), choice)}
        case "multiselect":
            choices = [str(choice) for choice in (value if isinstance(value, list) else [value])]
            return {
                "type": kind,
                "value": [choice if choice in options else ids.get(choice.lower(), choice) for choice in choices],
            }
        case "file" if isinstance(value, str):
            return {"type": kind, "value": [{"uri": value}]}
        case "text" | "date":
            return {"type": kind, "value": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}
        case _:
            return {"type": kind, "value": value}


def _parse_object(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _write_decision(_: JsonObject, value: Json) -> JsonObject:
    return {"decision": "approve" if is_yes(value) else "reject"}


def _write_action(_: JsonObject, value: Json) -> JsonObject:
    return {"action": "accept" if is_yes(value) else "reject"}


def _write_redirect(_: JsonObject, value: Json) -> JsonObject:
    return {"redirect_uri": value.get("redirect_uri") if isinstance(value, dict) else value}


def _write_secrets(form: JsonObject, value: Json) -> JsonObject:
    secrets = value if isinstance(value, dict) else dict.fromkeys(form["names"][:1], value)
    return {"secret_fulfillments": {name: {"secret": secrets[name]} for name in form["names"] if name in secrets}}


AGENTSTACK: Final = Framework(
    metadata_endings={TRAJECTORY: _read_trajectory, CITATION: _read_citations},
    question_endings={
        "/ui/form_request/v1": _read_form,
        "/ui/form/v1": _read_form,  # beeai-sdk
        "/interactions/approval/v1": _read_approval,
        "/tools/call/v1": _read_tool_call,
        "/auth/oauth/v1": _read_authorization,
        "/auth/secrets/v1": _read_secrets,
    },
    # Text of every approval of agentstack-sdk and kagenti-adk. Only the metadata contain what is to be approved.
    announcements=frozenset({"Approval requested", "Tool call approval requested"}),
    answers={
        "values": _write_values,
        "decision": _write_decision,
        "action": _write_action,
        "redirect_uri": _write_redirect,
        "secrets": _write_secrets,
    },
    error_endings={"/ui/error/v1": _read_error},
    is_on_card=lambda uri: uri.partition("://")[2].partition("/")[0] in _HOSTS,
    answers_in_status=True,
)
