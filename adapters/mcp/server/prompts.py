"""Prompts: the examples of agents' skills, and agents that are offered as prompts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.mcp.agents import AgentTool
from babelgate.adapters.mcp.codec.arguments import THREAD
from babelgate.adapters.mcp.server.calls import Peer, Retry, ToolCalls
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.agent import Skill
from babelgate.canonical.json import as_object
from babelgate.canonical.value import JsonObject

MESSAGE: Final = "message"
"""Argument of a skill's prompt: the text of the message. Its suggested values are the skill's examples."""


@dataclass(frozen=True, slots=True)
class _SkillPrompt:
    """Skill with examples, as a prompt of one message."""

    agent: AgentTool
    skill: Skill

    def encode(self, name: str) -> JsonObject:
        title = f"{self.agent.info.name}: {self.skill.name}"
        argument = {
            "name": MESSAGE,
            "description": "Text of the message. Without it, the first example of the skill is used.",
            "required": False,
        }
        return {"name": name, "title": title, "description": self.description, "arguments": [argument]}

    @property
    def description(self) -> str:
        return self.skill.description or f"An example for the agent {self.agent.info.name}."


class Prompts:
    """Implementation of the `prompts/…` methods for all callers, independent of the SDK."""

    def __init__(self, calls: ToolCalls) -> None:
        self._calls = calls

    def list_all(self, who: Caller) -> list[JsonObject]:
        """Return all prompts that the caller can see (SPEC/server/prompts, Prompt)."""
        agents, skills = self._prompts(who)
        return [
            *(_encode_agent(agent) for agent in agents.values()),
            *(prompt.encode(name) for name, prompt in skills.items()),
        ]

    def _prompts(self, who: Caller) -> tuple[Mapping[str, AgentTool], Mapping[str, _SkillPrompt]]:
        """Return the agents that are prompts, and the skills of tools that have examples, by the names of the prompts.
        A skill's prompt is named `<agent>/<skill>`: a slash never occurs in the name of an agent."""
        all_agents = self._calls.agents(who)
        agents = {name: agent for name, agent in all_agents.items() if agent.role == "prompt"}
        skills = {
            f"{name}/{skill.id}": _SkillPrompt(agent, skill)
            for name, agent in all_agents.items()
            if agent.role == "tool"
            for skill in agent.info.skills
            if skill.examples
        }
        return agents, skills

    async def get(
        self, who: Caller, name: str, arguments: Mapping[str, str], peer: Peer, retry: Retry | None = None
    ) -> JsonObject:
        """Return the messages of a prompt. For an agent that is a prompt, this is a run: it may return questions
        instead.

        Raises not_found for an unknown prompt, invalid for unknown or missing arguments, and the fault of a failed run.
        Raises forbidden if a token needs more scopes.
        """
        agents, skills = self._prompts(who)
        if name in skills:
            return _skill_messages(skills[name], arguments)
        agent = agents.get(name)
        if agent is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Unknown prompt: {name[:100]}")
        result = await self._calls.call_agent(who, agent, dict(arguments), peer, retry)
        if result.get("resultType") == "input_required":
            return result
        await self._calls.check_output(who, result)
        messages = [{"role": "user", "content": block} for block in result["content"]]
        return {"description": agent.description, "messages": messages, "_meta": result["_meta"]}

    def complete(self, who: Caller, name: str, argument: str, value: str) -> list[str]:
        """Return all values for an argument that begin with `value`: the examples of a skill, or the choices in the
        input schema of an agent. Raises not_found for an unknown prompt."""
        agents, skills = self._prompts(who)
        if name in skills:
            examples = skills[name].skill.examples if argument == MESSAGE else ()
            return [each for each in examples if each.startswith(value)]
        if name not in agents:
            raise FaultError(FaultCode.NOT_FOUND, f"Unknown prompt: {name[:100]}")
        return agents[name].choices(argument, value)


def _skill_messages(prompt: _SkillPrompt, arguments: Mapping[str, str]) -> JsonObject:
    unknown = arguments.keys() - {MESSAGE}
    if unknown:
        raise FaultError(FaultCode.INVALID, f"{min(unknown)[:100]}: The prompt has only the argument {MESSAGE}.")
    text = arguments.get(MESSAGE) or prompt.skill.examples[0]
    content = {"type": "text", "text": text}
    return {"description": prompt.description, "messages": [{"role": "user", "content": content}]}


def _encode_agent(agent: AgentTool) -> JsonObject:
    """Return an agent as a prompt, whose arguments are the members of its input schema, without `thread_id`."""
    members = as_object(agent.input_schema.get("properties"))
    required = agent.input_schema.get("required", [])
    arguments: list[JsonObject] = []
    for name, member in members.items():
        # Arguments of prompts are texts: lists, such as files, cannot be sent.
        if name == THREAD or as_object(member).get("type", "string") != "string":
            continue
        argument: JsonObject = {"name": name, "required": name in required}
        description = as_object(member).get("description")
        arguments.append(argument if description is None else {**argument, "description": description})
    return {"name": agent.info.name, "description": agent.description, "arguments": arguments}
