"""Agents as tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from babelgate.adapters.mcp.codec.arguments import THREAD
from babelgate.canonical import AgentInfo
from babelgate.canonical.value import JsonObject

RESUME: Final = "resume_run"

_THREAD: Final[JsonObject] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 256,
    "description": "A name of the conversation, of your choice. Calls of one name belong to one conversation; without "
    "one the agent knows of no other call.",
}

_MESSAGES: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What is said to the agent."},
        "data": {"description": "JSON that goes with it."},
        "files": {
            "type": "array",
            "description": "Files that go with it.",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "mime_type": {"type": "string"},
                    "data": {"type": "string", "description": "The bytes, in base64."},
                    "uri": {"type": "string", "description": "Where the bytes are, instead of these."},
                },
                "additionalProperties": False,
            },
        },
        THREAD: _THREAD,
    },
    "required": ["message"],
    "additionalProperties": False,
}

_ASKED: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string"},
        "status": {"const": "input_required"},
        "interrupts": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["run_id", "status", "interrupts"],
}

_RESUME: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string", "description": "The run_id of the result that asked."},
        "answers": {"type": "object", "description": "By the id of each question, the answer."},
        "action": {
            "enum": ["answer", "decline", "cancel"],
            "description": "`decline` tells the agent that its questions get no answer, `cancel` ends the run.",
        },
    },
    "required": ["run_id"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Tool:
    """An agent, as it is called."""

    info: AgentInfo
    input_schema: JsonObject
    takes_messages: bool
    """Its arguments are the gateway's own, not those of the agent."""
    output_schema: JsonObject | None
    """Of the agent's own output."""
    needs_task: bool
    """It is called by those alone who take a task for an answer: `{"mcp": {"tasks": "required"}}` in its metadata."""

    @classmethod
    def of(cls, info: AgentInfo) -> "Tool":
        given = info.schemas.get("input")
        own = None if given is None else _input_of(given)
        # What an agent has that keeps a state is the schema of that.
        output = None if info.stateful else info.schemas.get("output")
        told = output if output is not None and _is_object(output) and not _refers_inside(output) else None
        mcp = info.metadata.get("mcp")
        needs_task = isinstance(mcp, dict) and cast("JsonObject", mcp).get("tasks") == "required"
        return cls(info, own or _MESSAGES, own is None, told, needs_task)

    def encode(self) -> JsonObject:
        """SPEC/server/tools, Tool."""
        about = [self.info.description or f"The agent {self.info.name}."]
        about += [f"{skill.name}: {skill.description}" for skill in self.info.skills if skill.description]
        told: JsonObject = {
            "name": self.info.name,
            "description": "\n".join(about),
            "inputSchema": self.input_schema,
        }
        if self.output_schema is not None:
            # SPEC/server/tools, Output Schema: whatever structured result there is must fit, a question's as well.
            definitions = {
                name: value for name, value in self.output_schema.items() if name in ("$defs", "definitions")
            }
            own = {name: value for name, value in self.output_schema.items() if name not in definitions}
            told["outputSchema"] = {"type": "object", "anyOf": [own, _ASKED], **definitions}
        return told


def tools_of(infos: Sequence[AgentInfo]) -> dict[str, Tool]:
    return {info.name: Tool.of(info) for info in infos}


def resume_name(names: Mapping[str, object]) -> str:
    """The name of the tool that answers questions, which no agent has."""
    name = RESUME
    while name in names:
        name += "_"
    return name


def encode_resume(name: str) -> JsonObject:
    return {
        "name": name,
        "description": 'Goes on with a run whose result had the status "input_required".',
        "inputSchema": _RESUME,
    }


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _input_of(schema: JsonObject) -> JsonObject | None:
    """An agent's own schema as that of its tool; None for one whose input is messages."""
    members: object = schema.get("properties")
    if not _is_object(schema) or not isinstance(members, dict) or "messages" in members:
        return None
    # One that names no members may take any; it takes none if it says so.
    if not members and schema.get("additionalProperties") is not False:
        return None
    return {**schema, "properties": {THREAD: _THREAD, **members}}


def _refers_inside(schema: Any) -> bool:
    """Whether a part of it refers to another by where that stands, which is another place in the schema of a tool."""
    if isinstance(schema, dict):
        members = cast("JsonObject", schema)
        ref: object = members.get("$ref")
        if isinstance(ref, str) and not ref.startswith(("#/$defs/", "#/definitions/")):
            return True
        return any(_refers_inside(each) for each in members.values())
    return isinstance(schema, list) and any(_refers_inside(each) for each in cast("list[Any]", schema))
