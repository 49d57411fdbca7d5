"""Conversion of the caller's tools, and of their calls, to and from LangGraph. It has no rule for them, but three
conventions.

A graph receives the tools in members of its input, if it has such members, and otherwise in its configuration. There
are two ways in which a graph calls a tool:

- By an interrupt in the form of headless tools (useStream of @langchain/langgraph-sdk 1.15): `{"type": "tool",
  "tool_call": {"id", "name", "args"}}`, answered by `{"<call id>": <result>}`.
- By ending with the call in its last message. The next run of the graph gets the result as a message of type `tool`
  (ag-ui-langgraph 0.0.43).
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

_CALL_MEMBERS: Final = ("tool_call", "toolCall")
"""Spellings of the member of an interrupt's value that contains the tool call."""
DECLINED: Final = "The caller declined to run the tool."
"""Content of the tool message for a call that the caller declined to run."""


def encode_declared(config: JsonObject) -> list[JsonObject]:
    """Return the tools that the caller declared in `config`, in the form of chat completions. langchain's `bind_tools`
    accepts this form, so it goes into a graph's configuration."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in caller_tools(config)
    ]


def encode_input(config: JsonObject, members: Container[str], input_members: JsonObject) -> JsonObject:
    """Return input members such as `tools` or `copilotkit` that pass a graph the caller's tools, as AG-UI and
    CopilotKit do (ag-ui-langgraph 0.0.43).

    `members` are the names of the members that the graph's input may have. Members that the caller already filled in
    `input_members` are left out.
    """
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
    return {name: form for name, form in forms.items() if name in members and name not in input_members}


def decode_call(value: Json) -> ToolCallPart | None:
    """Return the tool call in the value of an interrupt that asks the caller to run a tool. Return None for any other
    value."""
    if not isinstance(value, dict) or value.get("type") != "tool":
        return None
    call: Any = next((value[name] for name in _CALL_MEMBERS if isinstance(value.get(name), dict)), None)
    if call is None or not isinstance(call.get("name"), str) or not isinstance(call.get("id"), str):
        return None
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    return ToolCallPart(call_id=call["id"], name=call["name"], arguments=arguments, side="caller")


def find_unanswered(messages: Json, names: Container[str]) -> Sequence[ToolCallPart]:
    """Return the tool calls in the last message of a conversation, if only tool messages follow it and they do not
    answer the call. Only calls of tools in `names` are returned."""
    answered: set[Any] = set()
    for message in reversed(messages if isinstance(messages, list) else []):
        wire = as_object(message)
        kind = wire.get("type", wire.get("role"))
        if kind == "tool":
            answered.add(wire.get("tool_call_id"))
            continue
        calls: Any = wire.get("tool_calls") if kind in ("ai", "assistant") else None
        parts = [decode_call({"type": "tool", "tool_call": call}) for call in calls or ()]
        return [call for call in parts if call is not None and call.name in names and call.call_id not in answered]
    return ()


def encode_tool_message(call: JsonObject, answer: InterruptAnswered) -> JsonObject:
    """Return the tool message with the caller's answer to a call that a graph ended on. `call` has the call's `call_id`
    and `name`, as the question stored them."""
    is_declined = answer.action == "decline"
    content = DECLINED if is_declined else answer.value if isinstance(answer.value, str) else json_text(answer.value)
    fields = {"tool_call_id": call["call_id"], "name": call["name"], "status": "error" if is_declined else "success"}
    return {"type": "tool", "content": content, **fields}


def encode_call(question: Interrupt) -> JsonObject | None:
    """Return the value of the interrupt that asks the caller to run one of its tools. Return None if the question asks
    something else."""
    part = find_caller_call(question.message)
    if part is None:
        return None
    arguments: JsonObject = json.loads(part.arguments) if part.arguments else {}
    return {"type": "tool", "tool_call": {"id": part.call_id, "name": part.name, "args": arguments}}


def find_caller_call(message: Message) -> ToolCallPart | None:
    """Return the call of a caller's tool in a message. Return None unless the message has exactly one such call, and
    its arguments are a JSON object or empty."""
    parts = [part for part in message.parts if isinstance(part, ToolCallPart) and part.side == "caller"]
    return parts[0] if len(parts) == 1 and _is_object(parts[0].arguments) else None


def encode_question(call: ToolCallPart) -> tuple[Message, JsonObject]:
    """Return the message and the value of a question that asks callers of other protocols to run one of their tools.
    The message contains the call and its text, such as `search({"q": "x"})`."""
    words = TextPart(text=f"{call.name}({call.arguments})")  # some protocols show only the text of a question
    value: JsonObject = {"name": call.name, "arguments": json.loads(call.arguments), "call_id": call.call_id}
    return Message(parts=(words, call)), value


def encode_result(call_id: str, value: Json) -> JsonObject:
    """Return the value that resumes a graph with the result of a tool call: `{"<call id>": <result>}`."""
    return {call_id: value}


def decode_result(message: Message, value: Json) -> Json:
    """Return the tool's result in a caller's answer. `message` is that of the question, whose call id tells the form
    `{"<call id>": <result>}` from a bare result."""
    part = find_caller_call(message)
    if part is not None and isinstance(value, dict) and value.keys() == {part.call_id}:
        return cast("Json", value[part.call_id])
    return value


def _is_object(arguments: str) -> bool:
    """Return True if the JSON text of a call's arguments is an object, or empty."""
    try:
        return not arguments or isinstance(json.loads(arguments), dict)
    except ValueError:
        return False
