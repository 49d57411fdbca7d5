"""Tools of the caller ↔ LangGraph, which has three conventions and no rule for them.

A graph is told of the tools by members of its input that it has for them, and else in its configuration; and it calls
one by an interrupt of the form of headless tools (useStream of @langchain/langgraph-sdk 1.15):
`{"type": "tool", "tool_call": {"id", "name", "args"}}`, answered by `{"<call id>": <result>}`. Or it ends with the call
in its last message, and is run again with a message of the tool (ag-ui-langgraph 0.0.43).
"""

import json
from collections.abc import Container, Sequence
from typing import Any, Final, cast

from babelgate.adapters.kit.json import json_text
from babelgate.canonical import Interrupt, Message, TextPart, ToolCallPart
from babelgate.canonical.caller_tool import caller_tools
from babelgate.canonical.event import InterruptAnswered
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

_MEMBERS: Final = ("tool_call", "toolCall")
DECLINED: Final = "The caller declined to run the tool."


def encode_declared(config: JsonObject) -> list[JsonObject]:
    """The caller's tools for a graph's configuration: as chat completions write them, which is what `bind_tools` of
    langchain takes."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in caller_tools(config)
    ]


def encode_input(config: JsonObject, members: Container[str], given: JsonObject) -> JsonObject:
    """Members of a graph's input by which it takes the caller's tools, as AG-UI and CopilotKit fill them
    (ag-ui-langgraph 0.0.43): those that the graph has and the caller has not filled."""
    tools: list[JsonObject] = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in caller_tools(config)
    ]
    if not tools:
        return {}
    forms: JsonObject = {
        "tools": tools,
        "client_tools": tools,
        "ag-ui": {"tools": tools, "context": []},
        "copilotkit": {"actions": tools, "context": []},
    }
    return {name: form for name, form in forms.items() if name in members and name not in given}


def decode_call(value: Json) -> ToolCallPart | None:
    """The call that an interrupt asks for; None where it asks something else."""
    if not isinstance(value, dict) or value.get("type") != "tool":
        return None
    call: Any = next((value[name] for name in _MEMBERS if isinstance(value.get(name), dict)), None)
    if call is None or not isinstance(call.get("name"), str) or not isinstance(call.get("id"), str):
        return None
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    return ToolCallPart(call_id=call["id"], name=call["name"], arguments=arguments, side="caller")


def find_unanswered(messages: Json, names: Container[str]) -> Sequence[ToolCallPart]:
    """The calls of tools of these names that a conversation ends on, without their results."""
    answered: set[Any] = set()
    for each in reversed(messages if isinstance(messages, list) else []):
        wire = as_object(each)
        kind = wire.get("type", wire.get("role"))
        if kind == "tool":
            answered.add(wire.get("tool_call_id"))
            continue
        calls: Any = wire.get("tool_calls") if kind in ("ai", "assistant") else None
        found = [decode_call({"type": "tool", "tool_call": call}) for call in calls or ()]
        return [call for call in found if call is not None and call.name in names and call.call_id not in answered]
    return ()


def encode_tool_message(called: JsonObject, answer: InterruptAnswered) -> JsonObject:
    """The result of a call that a graph ended on. `called` = what is kept of the call with its question."""
    declined = answer.action == "decline"
    content = DECLINED if declined else answer.value if isinstance(answer.value, str) else json_text(answer.value)
    told = {"tool_call_id": called["call_id"], "name": called["name"], "status": "error" if declined else "success"}
    return {"type": "tool", "content": content, **told}


def encode_call(question: Interrupt) -> JsonObject | None:
    """The value of an interrupt that calls a tool of the caller; None where the question is another."""
    part = called_part(question.message)
    if part is None:
        return None
    arguments: JsonObject = json.loads(part.arguments) if part.arguments else {}
    return {"type": "tool", "tool_call": {"id": part.call_id, "name": part.name, "args": arguments}}


def called_part(message: Message) -> ToolCallPart | None:
    parts = [part for part in message.parts if isinstance(part, ToolCallPart) and part.side == "caller"]
    return parts[0] if len(parts) == 1 and _is_object(parts[0].arguments) else None


def question_of(call: ToolCallPart) -> tuple[Message, JsonObject]:
    """The question that a call is to callers of other protocols: message and data."""
    words = TextPart(text=f"{call.name}({call.arguments})")  # all that some protocols show of a question
    value: JsonObject = {"name": call.name, "arguments": json.loads(call.arguments), "call_id": call.call_id}
    return Message(parts=(words, call)), value


def encode_result(call_id: str, value: Json) -> JsonObject:
    return {call_id: value}


def decode_result(message: Message, value: Json) -> Json:
    """The result, also of a client that gives it under the call's id."""
    part = called_part(message)
    if part is not None and isinstance(value, dict) and value.keys() == {part.call_id}:
        return cast("Json", value[part.call_id])
    return value


def _is_object(arguments: str) -> bool:
    try:
        return not arguments or isinstance(json.loads(arguments), dict)
    except ValueError:
        return False
