"""Agents of other frameworks, each on its framework's server, called through the gateway in every protocol."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

import pytest
import pytest_asyncio

from tests.interop.frameworks import ANSWER, CALLERS, Agent, Stage, check
from tests.pairs.caller import Caller

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADK: Final = "https://google.github.io/adk-docs/a2a/a2a-extension/"
"""URI of the extension that selects google-adk's newer executor."""
NEW_EXECUTOR: Final = {"X-A2A-Extensions": ADK, "A2A-Extensions": ADK}
CALL_WORDS: Final = ("weather", "Rome")
TYPED: Final = {"city": "Rome", "degrees": 21}
RESULT_WORDS: Final = (*CALL_WORDS, "sunny")
PIECES: Final = ("It gave ", "21 degrees")
INTERRUPT: Final = "Agent requires input:\n- approval: Wipe sda?"

HINT: Final = (
    "Please approve or reject the tool call wipe() by responding with a FunctionResponse with an expected "
    "ToolConfirmation payload."
)


def stack(name: str) -> Sequence[Agent]:
    """Return the agents of AgentStack or of its successor Kagenti. They report no usage."""
    return (
        Agent(name, "/demo", thinks=True, calls=RESULT_WORDS, cites="https://example.com/a", in_status=PIECES),
        Agent(
            *(f"{name}-form", "/form"),
            question="Who are you?\nFor the ticket.",
            a2a_question="Who are you?",
            reply="Ada",
            answer="Hello, Ada.",
            in_status=("Hello, Ada.",),
        ),
        Agent(
            *(f"{name}-approve", "/approve"),
            question='Wipe sda?\nwipe({"disk": "sda"})',
            a2a_question="Approval requested",
            answer="wipe: True",
            in_status=("wipe: True",),
        ),
    )


def adk(name: str, headers: Mapping[str, str] | None = None) -> Sequence[Agent]:
    wipe, boss, headers = f'{HINT}\nwipe({{"disk": "sda"}})', 'ask_boss({"question": "ok?"})', headers or {}
    weather, wiped, fine = (
        "weather gave {'temp': 21}",
        "wipe gave {'wiped': 'sda'}",
        "ask_boss gave {'result': 'fine'}",
    )
    return (
        Agent(name, "", answer=weather, thinks=True, calls=CALL_WORDS, counts=8822, headers=headers),
        Agent(f"{name}-wipe", "", "wipe", answer=wiped, question=wipe, headers=headers),
        Agent(f"{name}-boss", "", "boss", answer=fine, question=boss, reply="fine", headers=headers),
    )


FRAMEWORKS: Final[Mapping[str, Sequence[Agent]]] = {
    "adk": (*adk("adk"), *adk("adk-new", headers=NEW_EXECUTOR)),
    # It reports no thoughts, tools or usage.
    "agent-framework": (
        Agent("af-pieces", "/pieces"),
        Agent("af-whole", "/whole", in_status=PIECES, progress=ANSWER),
    ),
    "agentstack": stack("stack"),
    # It reports no tool results and no thoughts, and a run that waits for a confirmation as completed.
    "agno": (Agent("agno", "/a2a/agents/demo", calls=CALL_WORDS, counts=8822),),
    # It puts thoughts into the history of the task, and reports no tools or usage.
    "fasta2a": (
        Agent("fast-pieces", "/pieces"),
        Agent("fast-whole", "/whole"),
        Agent("fast-typed", "/typed", data=TYPED, data_in_a2a={"result": TYPED}),
    ),
    "kagenti": stack("kagenti"),
    # It reports no thoughts, tools or usage.
    "strands": (
        Agent("strands", "/pieces"),
        Agent("strands-default", "/status", answer=f"{ANSWER}\n", progress=ANSWER),
        Agent(
            "strands-asks",
            "/pieces",
            word="wipe",
            question=INTERRUPT,
            a2a_question=INTERRUPT,
            answer="It gave yes for sda",
        ),
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    stage = Stage(tmp_path_factory)
    yield stage
    await stage.close()


@pytest.mark.parametrize("caller", CALLERS, ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("peer", "agent"),
    [pytest.param(peer, agent, id=agent.name) for peer, agents in FRAMEWORKS.items() for agent in agents],
)
async def test_output_of_a_framework_agent_arrives_complete(
    stage: Stage, peer: str, agent: Agent, caller: type[Caller]
) -> None:
    gateway = await stage.open(peer, FRAMEWORKS[peer])
    await check(agent, caller(gateway.http, agent.name))
