"""Agents of other frameworks, each on its framework's own server, called through the gateway by every protocol."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

import pytest
import pytest_asyncio

from tests.interop.frameworks import ANSWER, CALLERS, Agent, Stage, check
from tests.pairs.caller import Caller

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADK: Final = "https://google.github.io/adk-docs/a2a/a2a-extension/"
"""What google-adk's newer executor is asked for by."""
NEWER: Final = {"X-A2A-Extensions": ADK, "A2A-Extensions": ADK}
LOOKED: Final = ("weather", "Rome")
TYPED: Final = {"city": "Rome", "degrees": 21}
FOUND: Final = (*LOOKED, "sunny")
PIECES: Final = ("It gave ", "21 degrees")
INTERRUPT: Final = "Agent requires input:\n- approval: Wipe sda?"

HINT: Final = (
    "Please approve or reject the tool call wipe() by responding with a FunctionResponse with an expected "
    "ToolConfirmation payload."
)


def stack(name: str) -> Sequence[Agent]:
    """Kagenti came of AgentStack. Their agents have models of their own: they tell no usage."""
    return (
        Agent(name, "/demo", thinks=True, calls=FOUND, cites="https://example.com/a", in_status=PIECES),
        Agent(
            *(f"{name}-form", "/form"),
            asks="Who are you?\nFor the ticket.",
            own_words="Who are you?",
            gets="Ada",
            answer="Hello, Ada.",
            in_status=("Hello, Ada.",),
        ),
        Agent(
            *(f"{name}-approve", "/approve"),
            asks='Wipe sda?\nwipe({"disk": "sda"})',
            own_words="Approval requested",
            answer="wipe: True",
            in_status=("wipe: True",),
        ),
    )


def adk(name: str, headers: Mapping[str, str] | None = None) -> Sequence[Agent]:
    wipe, boss, headers = f'{HINT}\nwipe({{"disk": "sda"}})', 'ask_boss({"question": "ok?"})', headers or {}
    weather, wiped, said = "weather gave {'temp': 21}", "wipe gave {'wiped': 'sda'}", "ask_boss gave {'result': 'fine'}"
    return (
        Agent(name, "", answer=weather, thinks=True, calls=LOOKED, counts=8822, headers=headers),
        Agent(f"{name}-wipe", "", "wipe", answer=wiped, asks=wipe, headers=headers),
        Agent(f"{name}-boss", "", "boss", answer=said, asks=boss, gets="fine", headers=headers),
    )


FRAMEWORKS: Final[Mapping[str, Sequence[Agent]]] = {
    "adk": (*adk("adk"), *adk("adk-new", headers=NEWER)),
    # Tells neither what its model thinks nor its tools nor what they cost.
    "agent-framework": (
        Agent("af-pieces", "/pieces"),
        Agent("af-whole", "/whole", in_status=PIECES, on_the_way=ANSWER),
    ),
    "agentstack": stack("stack"),
    # It tells no result of a tool, no thought, and of a run that waits for a confirmation that it is completed.
    "agno": (Agent("agno", "/a2a/agents/demo", calls=LOOKED, counts=8822),),
    # It keeps thoughts in the history of the task, and tells neither tools nor usage.
    "fasta2a": (
        Agent("fast-pieces", "/pieces"),
        Agent("fast-whole", "/whole"),
        Agent("fast-typed", "/typed", data=TYPED, data_in_a2a={"result": TYPED}),
    ),
    "kagenti": stack("kagenti"),
    # It tells neither thoughts nor tools nor usage.
    "strands": (
        Agent("strands", "/pieces"),
        Agent("strands-default", "/status", answer=f"{ANSWER}\n", on_the_way=ANSWER),
        Agent(
            "strands-asks", "/pieces", word="wipe", asks=INTERRUPT, own_words=INTERRUPT, answer="It gave yes for sda"
        ),
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    made = Stage(tmp_path_factory)
    yield made
    await made.close()


@pytest.mark.parametrize("caller", CALLERS, ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("peer", "agent"),
    [pytest.param(peer, agent, id=agent.name) for peer, agents in FRAMEWORKS.items() for agent in agents],
)
async def test_what_an_agent_says_arrives_as_what_it_is(
    stage: Stage, peer: str, agent: Agent, caller: type[Caller]
) -> None:
    gateway = await stage.of(peer, FRAMEWORKS[peer])
    await check(agent, caller(gateway.http, agent.name))
