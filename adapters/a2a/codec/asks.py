"""Questions in the forms that other frameworks ask in, and answers in the form that each takes.

A2A has no form of its own: each framework made one, and refuses, or passes over, an answer in any other. So what a
question is answered by (`Question.form`) is kept with it. Each line of the two tables names who asks so. What is an
approval is approved by a clear yes only.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from babelgate.adapters.kit.client.consent import is_yes
from babelgate.canonical import CallerTool, DataPart, Part, TextPart, ToolCallPart
from babelgate.canonical.event import InterruptAnswered
from babelgate.canonical.json import as_list, as_object, as_text, objects_in
from babelgate.canonical.message import text_of
from babelgate.canonical.value import Json, JsonObject

KAGENT: Final = "https://kagent.dev/extensions/hitl/v1"
AG2: Final = "urn:ag2:client-tools:v1"
"""By which ag2 1.2.1 is offered the tools of its caller, and calls them: in 1.0 alone, whose parts have media types."""
_AG2_TOOLS, _AG2_CALL, _AG2_RESULT = (f"application/vnd.ag2.tool-{each}+json" for each in ("schemas", "call", "result"))
SHARED: Final = "shared"
TOOL_MARKS: Final = ("adk_type", "kagent.dev/a2a/part-type", "kagent_type")
"""Keys of a part's metadata that say which part of genai's it is: google-adk 2.13.0, kagent 1.0.0a17, older ones."""


@dataclass(frozen=True, slots=True)
class Question:
    parts: tuple[Part, ...]
    id: str | None = None
    """By which it can be answered alone."""
    value: Json = None
    schema: JsonObject | None = None
    ask: Literal["input", "approval", "auth"] = "input"
    form: JsonObject | None = None
    """How it is answered, where that is not in plain parts: `as`, one of `_ANSWERS`, and what that needs."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What answers questions: parts of a message, and what else it has to say."""

    parts: tuple[Part, ...] = ()
    metadata: JsonObject | None = None
    extensions: tuple[str, ...] = ()


# What is asked


def decode_asked(parts: Sequence[Part], metadata: JsonObject | None) -> list[Question]:
    """The questions of a status message in another framework's form; none if it has none. The message's other parts are
    said with the first."""
    found: list[Question] = []
    said: list[Part] = []
    for part in parts:
        asked = [] if not isinstance(part, DataPart) else _decode_data(part)
        found += asked
        if not asked and not _is_tool(part):
            said.append(part)
    for key, value in (metadata or {}).items():
        for path, decode in _MESSAGES.items():
            if key.endswith(path) and isinstance(value, dict):
                found += decode(key, cast("JsonObject", value))
    return [_with_words(each, tuple(said) if index == 0 else ()) for index, each in enumerate(found)]


def decode_calls(parts: Sequence[Part]) -> list[Question]:
    """Calls of the caller's tools by ag2 1.2.1, each of which is an artifact; none if any part is something else."""
    found: list[Question] = []
    for part in parts:
        call = as_object(part.data) if isinstance(part, DataPart) and part.media_type == _AG2_CALL else {}
        call_id, name, given = as_text(call.get("id")), as_text(call.get("name")), call.get("arguments")
        if not call_id or not name:
            return []
        arguments = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
        asked = ToolCallPart(call_id=call_id, name=name, arguments=arguments, side="caller")
        found.append(Question((asked,), call_id, form={"as": "tool_result", "id": call_id, "name": name}))
    return found


def encode_offer(tools: Iterable[CallerTool]) -> DataPart:
    """The tools of a caller, for ag2 1.2.1, which wants them in each message."""
    told: list[Json] = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools
    ]
    return DataPart(data={"tools": told}, media_type=_AG2_TOOLS)


def is_waiting(part: Part) -> bool:
    """Whether it is a call of a tool that waits for the caller: then it is asked when the task stops for it."""
    return isinstance(part, DataPart) and part.metadata.get("adk_is_long_running") is True


def _is_tool(part: Part) -> bool:
    return isinstance(part, DataPart) and any(key in part.metadata for key in TOOL_MARKS)


def _with_words(asked: Question, said: tuple[Part, ...]) -> Question:
    """Callers of most protocols are shown words, and nothing else."""
    own, told = asked.parts, text_of(said).strip()
    if told and asked.form and "words" in asked.form:
        if told in _ANNOUNCED or text_of(own).startswith(told):
            said = tuple(part for part in said if not isinstance(part, TextPart))
        else:
            own = ()
    elif told and own:
        own = (TextPart(text="\n"), *own)
    return _replace(asked, (*said, *own))


_ANNOUNCED: Final = frozenset({"Approval requested", "Tool call approval requested"})
"""What agentstack-sdk 0.7.1 and kagenti-adk 0.8.1 say of every approval: what it is of is in the metadata alone."""


def _replace(asked: Question, parts: tuple[Part, ...]) -> Question:
    form = {name: value for name, value in (asked.form or {}).items() if name != "words"}
    return Question(parts, asked.id, asked.value, asked.schema, asked.ask, form or None)


def _decode_data(part: DataPart) -> list[Question]:
    if not isinstance(part.data, dict):
        return []
    data: JsonObject = part.data
    mark = next((key for key in TOOL_MARKS if part.metadata.get(key) == "function_call"), None)
    if mark is not None and is_waiting(part):
        return _function_call(data, mark)
    return _strands(data) or _gemini(data)


def _function_call(data: JsonObject, mark: str) -> list[Question]:
    """google-adk 2.13.0: a call that waits for its response."""
    call_id, name, args = as_text(data.get("id")), as_text(data.get("name")), as_object(data.get("args"))
    if not call_id or not name:
        return []
    form: JsonObject = {"as": "function_response", "mark": mark, "id": call_id, "name": name}
    match name:
        case "adk_request_confirmation":
            hint = as_text(as_object(args.get("toolConfirmation")).get("hint"))
            call = as_object(args.get("originalFunctionCall"))  # with what, the hint does not say
            words = "\n".join(filter(None, (hint, _in_words(call.get("name"), call.get("args"))))) or name
            return [Question(_words(words), call_id, args, _CONFIRMED, "approval", form)]
        case "adk_request_input":
            schema = as_object(args.get("response_schema")) or None
            return [
                Question(_words(as_text(args.get("message")) or name), call_id, args.get("payload"), schema, form=form)
            ]
        case "adk_request_credential":
            return [Question(_words("The agent asks for credentials."), call_id, args, None, "auth", form)]
        case _:
            return [Question(_words(_in_words(name, args)), call_id, {"name": name, "args": args}, form=form)]


def _strands(data: JsonObject) -> list[Question]:
    """strands-agents 1.62, whose text beside it names all of its interrupts."""
    found: list[Question] = []
    for each in objects_in(data.get("interrupts")) if set(data) == {"interrupts"} else ():
        interrupt_id, reason = as_text(each.get("interruptId")), each.get("reason")
        if interrupt_id:
            words = _words(reason if isinstance(reason, str) else as_text(each.get("name")))
            form: JsonObject = {"as": "interruptResponse", "id": interrupt_id, "words": True}
            found.append(Question(words, interrupt_id, reason, form=form))
    return found


def _gemini(data: JsonObject) -> list[Question]:
    """The a2a-server of gemini-cli 0.25.2: a call that waits for a confirmation."""
    call, details = as_object(data.get("request")), data.get("confirmationDetails")
    call_id, name = as_text(call.get("callId")), as_text(call.get("name"))
    if not call_id or not isinstance(details, dict) or data.get("status") != "awaiting_approval":
        return []
    form: JsonObject = {"as": "outcome", "id": call_id}
    return [Question(_words(_in_words(name, as_object(call.get("args")))), call_id, data, _CONFIRMED, "approval", form)]


def _form(key: str, form: JsonObject) -> list[Question]:
    fields = {as_text(field.get("id")): field for field in objects_in(form.get("fields"))}
    kinds = {name: as_text(field.get("type")) for name, field in fields.items()}
    properties: JsonObject = {name: _field_schema(field) for name, field in fields.items()}
    schema: JsonObject = {"type": "object", "properties": properties}
    if required := [name for name, field in fields.items() if field.get("required") is True]:
        schema["required"] = required
    words = "\n".join(filter(None, (as_text(form.get("title")), as_text(form.get("description")))))
    taken: JsonObject = {"as": "values", "uri": key, "fields": kinds, "required": required, "words": True}
    taken["options"] = {name: _options(field) for name, field in fields.items() if _options(field)}
    return [Question(_words(words or "The agent asks for a form."), None, form, schema, form=taken)]


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
            boxes = {as_text(each.get("id")): {"type": "boolean"} for each in objects_in(field.get("fields"))}
            return {**title, "type": "object", "properties": boxes}
        case "date":
            return {**title, "type": "string", "format": "date"}
        case "file":
            return {**title, "type": "string", "format": "uri"}
        case _:
            return {**title, "type": "string"}


def _options(field: JsonObject) -> dict[str, str]:
    """Id → label."""
    return {as_text(each.get("id")): as_text(each.get("label")) for each in objects_in(field.get("options"))}


def _approval(key: str, asked: JsonObject) -> list[Question]:
    form: JsonObject = {"as": "decision", "uri": key, "words": True}
    return [Question(_words(_about_call(asked)), None, asked, _enum("decision", "approve", "reject"), "approval", form)]


def _tool_call(key: str, asked: JsonObject) -> list[Question]:
    form: JsonObject = {"as": "action", "uri": key, "words": True}
    return [Question(_words(_about_call(asked)), None, asked, _enum("action", "accept", "reject"), "approval", form)]


def _about_call(asked: JsonObject) -> str:
    told = (
        as_text(asked.get("title")),
        as_text(asked.get("description")),
        _in_words(asked.get("name"), asked.get("input")),
    )
    return "\n".join(filter(None, told)) or "The agent asks for an approval."


def _in_words(name: object, given: object) -> str:
    return f"{name}({json.dumps(given, ensure_ascii=False)})" if isinstance(name, str) and name else ""


def _oauth(key: str, asked: JsonObject) -> list[Question]:
    form: JsonObject = {"as": "redirect_uri", "uri": key, "words": True}
    words = _words(as_text(asked.get("authorization_endpoint_url")) or "The agent asks for an authorization.")
    return [Question(words, None, asked, None, "auth", form)]


def _secrets(key: str, asked: JsonObject) -> list[Question]:
    demands = as_object(asked.get("secret_demands"))
    properties: JsonObject = {name: {"type": "string"} for name in demands}
    schema: JsonObject = {"type": "object", "properties": properties, "required": list(properties)}
    form: JsonObject = {"as": "secrets", "uri": key, "names": list(properties), "words": True}
    return [Question(_words("The agent asks for secrets."), None, asked, schema, "auth", form)] if demands else []


def _kagent(key: str, asked: JsonObject) -> list[Question]:
    found: list[Question] = []
    # An agent within asks: who that is, and what it would call. It is answered by the ids of the one outside.
    nested = as_object(asked.get("nested"))
    within = as_text(nested.get("subagent_name"))
    calls = [_in_words(tool.get("name"), tool.get("args")) for tool in objects_in(nested.get("tools"))]
    if asked.get("type") == "tool_approval_request":
        for tool in objects_in(asked.get("tools")):
            tool_id, hint = as_text(tool.get("id")), as_text(asked.get("hint"))
            call = _in_words(tool.get("name"), tool.get("args"))
            inner = [f"{within}: {each}" if within else each for each in calls if each and each != call]
            words = "\n".join(filter(None, (hint, call, *inner)))
            form: JsonObject = {"as": "approvals", "uri": key, "id": tool_id}
            found.append(Question(_words(words), tool_id or None, tool, _APPROVED, "approval", form))
    elif asked.get("type") == "ask_user_request":
        for number, each in enumerate(objects_in(asked.get("questions"))):
            form = {"as": "answers", "uri": key, "id": asked.get("id"), "number": number}
            choices = [choice for choice in as_list(each.get("choices")) if isinstance(choice, str)]
            schema: JsonObject | None = {"type": "string", "enum": choices} if choices else None
            if schema is not None and each.get("multiple") is True:
                schema = {"type": "array", "items": schema}
            words = ": ".join(filter(None, (within, as_text(each.get("question")))))
            found.append(Question(_words(words), None, each, schema, form=form))
    return found


def _opencode(_: str, shared: JsonObject) -> list[Question]:
    """opencode-a2a 1.4.0. It takes answers by methods of its own alone (`a2a.interrupt.permission.reply` and
    `a2a.interrupt.question.reply`): the schemas are theirs, and there is no form of a message."""
    asked = as_object(shared.get("interrupt"))
    request_id, details = as_text(asked.get("request_id")), as_object(asked.get("details"))
    if not request_id or asked.get("phase") == "resolved":  # which stays in the metadata of a task
        return []
    if asked.get("type") == "permission":
        patterns = [each for each in as_list(details.get("patterns")) if isinstance(each, str)]
        words = ": ".join(filter(None, (as_text(details.get("permission")), ", ".join(patterns))))
        schema = _enum("reply", "once", "always", "reject")
        return [Question(_words(words or "The agent asks for a permission."), request_id, asked, schema, "approval")]
    questions = objects_in(details.get("questions"))
    words = "\n".join(filter(None, map(_with_options, questions))) or "The agent asks."
    return [Question(_words(words), request_id, asked, _ANSWERS_IN_ORDER if questions else None)]


def _with_options(question: JsonObject) -> str:
    labels = [as_text(each.get("label")) or as_text(each.get("value")) for each in objects_in(question.get("options"))]
    options = ", ".join(filter(None, labels))
    words = as_text(question.get("question")) or as_text(question.get("header"))
    return f"{words} ({options})" if options else words


_MESSAGES: Final[Mapping[str, Callable[[str, JsonObject], list[Question]]]] = {
    # agentstack-sdk 0.7.1, kagenti-adk 0.8.1 and beeai-sdk 0.3.7: three origins, and the same paths.
    "/ui/form_request/v1": _form,
    "/ui/form/v1": _form,  # beeai-sdk 0.3.7
    "/interactions/approval/v1": _approval,
    "/tools/call/v1": _tool_call,
    "/auth/oauth/v1": _oauth,
    "/auth/secrets/v1": _secrets,
    KAGENT: _kagent,  # kagent at 5229184
    SHARED: _opencode,  # opencode-a2a 1.4.0, in the metadata of the update
}
"""How a key of a status message's metadata ends → what it asks."""


# What is answered


def encode_answers(asked: Iterable[tuple[JsonObject, InterruptAnswered]]) -> Reply:
    """The answers to questions that have a `form` each, in one message."""
    parts: list[Part] = []
    results: list[Json] = []
    metadata: JsonObject = {}
    extensions: dict[str, None] = {}
    for form, answer in asked:
        value = None if answer.action == "decline" else answer.value
        told = _ANSWERS[form["as"]](form, value)
        uri = form.get("uri")
        if isinstance(told, DataPart):
            parts.append(told)
        elif form["as"] == "tool_result":
            results.append(told)
        elif isinstance(uri, str):
            metadata[uri] = _merge(as_object(metadata.get(uri)), told)
            if uri == KAGENT:  # it wants the URI in both places
                extensions[uri] = None
    if results:
        parts.append(DataPart(data={"results": results}, media_type=_AG2_RESULT))
        extensions[AG2] = None
    return Reply(tuple(parts), metadata, tuple(extensions))


def _merge(before: JsonObject, more: JsonObject) -> JsonObject:
    """Lists of both are one."""
    joined = {**before, **more}
    for name, value in more.items():
        if isinstance(value, list) and isinstance(before.get(name), list):
            joined[name] = [*before[name], *cast("list[Any]", value)]
    return joined


def is_answer(part: Part) -> bool:
    """Whether a caller's part is an answer in one of these forms already."""
    if not isinstance(part, DataPart):
        return False
    marked = any(part.metadata.get(key) == "function_response" for key in TOOL_MARKS)
    marked = marked or part.media_type == _AG2_RESULT
    return marked or (isinstance(part.data, dict) and bool({"interruptResponse", "outcome"} & set(part.data)))


def _function_response(form: JsonObject, value: Json) -> DataPart:
    name = form["name"]
    if name == "adk_request_confirmation":
        response: JsonObject = {"confirmed": is_yes(value)}
        if isinstance(value, dict) and "payload" in value:
            response["payload"] = value["payload"]
    else:
        # google-adk 2.13.0 takes an object, and unwraps one with the member `result` alone (`_unwrap_response`).
        response = value if isinstance(value, dict) else {"result": value}
    data: JsonObject = {"id": form["id"], "name": name, "response": response}
    return DataPart(data=data, metadata={form["mark"]: "function_response"})


def _tool_result(form: JsonObject, value: Json) -> JsonObject:
    content = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    result: JsonObject = {"id": form["id"], "name": form["name"], "content": content}
    return {**result, "content": "", "error": "The caller has declined."} if value is None else result


def _interrupt_response(form: JsonObject, value: Json) -> DataPart:
    return DataPart(data={"interruptResponse": {"interruptId": form["id"], "response": value}})


def _outcome(form: JsonObject, value: Json) -> DataPart:
    named = value.get("outcome") if isinstance(value, dict) else None
    return DataPart(data={"callId": form["id"], "outcome": named or ("proceed_once" if is_yes(value) else "cancel")})


def _values(form: JsonObject, value: Json) -> JsonObject:
    """Of a form. Text is the value of its one field, or of the first that must be filled."""
    kinds: JsonObject = form["fields"]
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _parse(value)
    if isinstance(value, dict):
        given: JsonObject = value
    else:
        texts = [name for name in (*form["required"], *kinds) if kinds[name] not in ("file", "checkbox_group")]
        given = {texts[0]: value} if texts and value is not None else {}
    found = {
        name: _field_value(kinds[name], as_object(form["options"].get(name)), given[name])
        for name in given
        if name in kinds
    }
    return {"values": found}


def _field_value(kind: str, options: JsonObject, value: Json) -> JsonObject:
    ids = {label.lower(): name for name, label in options.items()}
    match kind:
        case "checkbox":
            return {"type": kind, "value": is_yes(value)}
        case "singleselect":
            chosen = str(value)
            return {"type": kind, "value": chosen if chosen in options else ids.get(chosen.lower(), chosen)}
        case "multiselect":
            chosen_all = [str(each) for each in (value if isinstance(value, list) else [value])]
            return {"type": kind, "value": [one if one in options else ids.get(one.lower(), one) for one in chosen_all]}
        case "file" if isinstance(value, str):
            return {"type": kind, "value": [{"uri": value}]}
        case "text" | "date":
            return {"type": kind, "value": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}
        case _:
            return {"type": kind, "value": value}


def _decision(_: JsonObject, value: Json) -> JsonObject:
    return {"decision": "approve" if is_yes(value) else "reject"}


def _action(_: JsonObject, value: Json) -> JsonObject:
    return {"action": "accept" if is_yes(value) else "reject"}


def _redirect(_: JsonObject, value: Json) -> JsonObject:
    given = value.get("redirect_uri") if isinstance(value, dict) else value
    return {"redirect_uri": given}


def _secret_values(form: JsonObject, value: Json) -> JsonObject:
    given = value if isinstance(value, dict) else dict.fromkeys(form["names"][:1], value)
    return {"secret_fulfillments": {name: {"secret": given[name]} for name in form["names"] if name in given}}


def _approvals(form: JsonObject, value: Json) -> JsonObject:
    approved = is_yes(value)
    told: JsonObject = {"id": form["id"], "approved": approved}
    why = value.get("rejection_reason") if isinstance(value, dict) else value
    if not approved and isinstance(why, str) and why:
        told["rejection_reason"] = why
    return {"type": "tool_approval_response", "approvals": [told]}


def _answers(form: JsonObject, value: Json) -> JsonObject:
    said = [str(each) for each in (value if isinstance(value, list) else [value]) if each is not None]
    return {"type": "ask_user_response", "id": form["id"], "answers": [{"answer": said}]}


_ANSWERS: Final[Mapping[str, Callable[[JsonObject, Json], DataPart | JsonObject]]] = {
    "function_response": _function_response,
    "tool_result": _tool_result,
    "interruptResponse": _interrupt_response,
    "outcome": _outcome,
    "values": _values,
    "decision": _decision,
    "action": _action,
    "redirect_uri": _redirect,
    "secrets": _secret_values,
    "approvals": _approvals,
    "answers": _answers,
}
"""`Question.form["as"]` → the answer: a part, a result among those of one part, or a value of the message's metadata
under `form["uri"]`."""

_ANSWERS_IN_ORDER: Final[JsonObject] = {
    "type": "object",
    "properties": {"answers": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}},
    "required": ["answers"],
}
"""A list for each question."""
_CONFIRMED: Final[JsonObject] = {
    "type": "object",
    "properties": {"confirmed": {"type": "boolean"}},
    "required": ["confirmed"],
}
_APPROVED: Final[JsonObject] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "rejection_reason": {"type": "string"}},
    "required": ["approved"],
}


def _enum(name: str, *values: str) -> JsonObject:
    return {"type": "object", "properties": {name: {"type": "string", "enum": list(values)}}, "required": [name]}


def _words(text: str) -> tuple[Part, ...]:
    return (TextPart(text=text),) if text else ()


def _parse(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
