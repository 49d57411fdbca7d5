"""Between two gateways nothing gets lost: a run that says one of everything is read as it was said, also where the
stream breaks in the middle of it."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from babelgate.adapters._upstream import Client
from babelgate.adapters.langchain.client import Client as LangChain
from babelgate.adapters.openai.client import Client as OpenAI
from babelgate.canonical import (
    AgentInfo,
    AnnotationPart,
    DataPart,
    Event,
    FilePart,
    Invocation,
    Message,
    ReasoningPart,
    RefusalPart,
    RunInput,
    TextPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
)
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.adapters.a2a.talk import Talk
from tests.interop.proxy import CUT, cutting
from tests.running import Running, running

_ASKED: Final = InterruptRaised(
    interrupt_id="i1",
    message=Message(message_id="q1", parts=(TextPart(text="May I?"), DataPart(data={"n": 1}))),
    answer_schema={"type": "object"},
    value={"action": "write"},
)
_SAID: Final[Sequence[Event]] = (
    MessageStarted(message_id="m0", phase="progress"),
    PartAdded(message_id="m0", part=TextPart(text="On it.")),
    MessageEnded(message_id="m0"),
    StepStarted(step_id="s1", name="plan", input={"goal": "x"}),
    ToolStarted(call_id="c1", name="search", input={"q": "rome"}),
    ToolEnded(call_id="c1", name="search", output={"found": [1, 2.5, None]}),
    StepEnded(step_id="s1", name="plan", update={"plan": ["y"]}),
    MessageStarted(message_id="m1", metadata={"tone": "calm"}),
    PartAdded(message_id="m1", part=ReasoningPart(text=""), open=True),
    PartDelta(message_id="m1", text="Let me "),
    PartDelta(message_id="m1", text="think."),
    PartEnded(message_id="m1"),
    PartAdded(message_id="m1", part=TextPart(text=""), open=True),
    *(PartDelta(message_id="m1", text=f"{number} ") for number in range(40)),
    PartEnded(message_id="m1"),
    PartAdded(message_id="m1", part=AnnotationPart(url="https://example.com/a", title="A", start=0, end=2)),
    PartAdded(message_id="m1", part=RefusalPart(text="No more.")),
    PartAdded(message_id="m1", part=FilePart(name="a.bin", media_type="application/x-a", inline=bytes(range(256)))),
    MessageEnded(message_id="m1", usage={"input_tokens": 3}),
    Custom(name="mood", value={"good": True}),
    ArtifactAdded(artifact_id="a1", name="a.txt", part=TextPart(text="One. "), last=False),
    ArtifactAdded(artifact_id="a1", name="a.txt", part=TextPart(text="Two."), append=True),
    _ASKED,
)
_LEFT_OUT: Final = frozenset({"extra", "node", "index"})
"""Of an event: what each gateway adds by itself."""


class All:
    """Says one of everything, and what it was answered."""

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        if not call.answers:
            for event in _SAID:
                yield event
            return
        yield MessageStarted(message_id="m2")
        yield PartAdded(message_id="m2", part=DataPart(data=[call.answers[0].action, call.answers[0].value]))
        yield MessageEnded(message_id="m2")
        yield RunEnded(output={"done": True}, usage={"output_tokens": 7})


def _told(events: Sequence[Event]) -> list[Any]:
    """Without what belongs to each gateway."""
    said = [_by_hash(each) for each in events if not isinstance(each, UpstreamBound)]
    return [{k: v for k, v in msgspec.to_builtins(each).items() if k not in _LEFT_OUT} for each in said]


def _by_hash(event: Event) -> Event:
    """With its file as a log has it."""
    part = event.part if isinstance(event, PartAdded) else None
    if not isinstance(event, PartAdded) or not isinstance(part, FilePart) or part.inline is None:
        return event
    known = part.replace(inline=None, blob=sha256(part.inline).hexdigest(), size=len(part.inline))
    return event.replace(part=known)


_CUT: Final = {CUT: "cut"}
CLIENTS: Final[Mapping[str, Callable[[str], Client]]] = {
    "langgraph": lambda url: LangChain(url, "all", dialect="langgraph", headers=_CUT),
    "agent-protocol": lambda url: LangChain(f"{url}/agent-protocol", "all", dialect="agent-protocol", headers=_CUT),
    "openai-responses": lambda url: OpenAI(f"{url}/v1", "all", api="responses", headers=_CUT),
    "openai-chat-completions": lambda url: OpenAI(f"{url}/v1", "all", api="chat", headers=_CUT),
}
QUESTIONS: Final = {"langgraph": 1, "agent-protocol": 2, "openai-responses": 1, "openai-chat-completions": 1}
"""Requests that are no run's, before it: what the server is, and for a thread."""


@pytest.fixture
async def behind(tmp_path: Path) -> AsyncGenerator[Running]:
    info = AgentInfo(name="all", input_types=("*/*",))
    async with running(tmp_path, registered={"all": RegisteredAgent(info, All())}) as made:
        yield made


async def _heard(client: Client) -> tuple[list[Any], list[Any]]:
    """Until it asks, and after the answer."""
    talk = Talk(client)
    call = replace(talk.call("go"), input=RunInput(messages=(Message.of("go", "user"),)))
    asked = await talk.play(call)
    before = [record.event for record in talk.records if record.run_id == call.run_id]
    assert [each.value for each in asked.questions] == [{"action": "write"}]
    seen = len(talk.records)
    await talk.answer({"approved": True})
    return _told(before), _told([record.event for record in talk.records[seen:]])


_CUTS: Final = [(), (2500, 1, 3000, 4000)]
CASES: Final = [
    (protocol, cuts) for protocol in CLIENTS for cuts in _CUTS if not cuts or protocol != "openai-chat-completions"
]
"""A chat completion cannot be come back to."""


@pytest.mark.parametrize(("protocol", "cuts"), CASES)
async def test_a_run_is_read_as_it_was_said(behind: Running, protocol: str, cuts: Sequence[int]) -> None:
    async with cutting(behind.url, {"cut": [*[10**9] * QUESTIONS[protocol], *cuts]}) as proxy:
        client = CLIENTS[protocol](proxy.url)
        before, after = await _heard(client)
        await client.aclose()
        assert not proxy.cuts["cut"]
    wanted = _told(_SAID)
    assert [each for each in before if each["kind"] in _KINDS] == wanted
    data = [each["part"]["data"] for each in after if each["kind"] == "part_added"]
    assert data == [["answer", {"approved": True}]]
    [ended] = [each for each in after if each["kind"] == "run_ended"]
    assert (ended["output"], ended["usage"]) == ({"done": True}, {"output_tokens": 7})


_KINDS: Final = {str(each.kind) for each in _SAID}
