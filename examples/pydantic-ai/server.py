"""A Pydantic AI agent behind FastA2A. Its model follows a script, so it needs no API key."""

import uvicorn
from fasta2a.pydantic_ai import agent_to_a2a
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

PORT = 9000


def follow_script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool first, and then answer with its result."""
    part = messages[-1].parts[-1]
    if isinstance(part, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"It has {part.content} degrees.")])
    assert isinstance(part, UserPromptPart)
    return ModelResponse(parts=[ToolCallPart("get_temperature", {"city": part.content})])


# For a real model, write Agent("openai:gpt-5", …) and set OPENAI_API_KEY.
agent = Agent(FunctionModel(follow_script), name="weather")


@agent.tool_plain
def get_temperature(city: str) -> int:
    """Return the temperature in a city."""
    return 21


if __name__ == "__main__":
    uvicorn.run(agent_to_a2a(agent, url=f"http://127.0.0.1:{PORT}"), port=PORT)
