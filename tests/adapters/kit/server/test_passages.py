"""Tokens that are encoded together give the same frames as one by one, independent of the batches of the log."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.a2a.codec import v0_3, v1_0
from babelgate.adapters.a2a.server.follow import _Encoder as A2A  # pyright: ignore[reportPrivateUsage]
from babelgate.adapters.a2a.write.task_events import EventWriter as A2AWriter
from babelgate.adapters.acp.codec.parts import EncodingContext
from babelgate.adapters.acp.server.follow import _Encoder as Acp  # pyright: ignore[reportPrivateUsage]
from babelgate.adapters.acp.write.recorded import RecordedWriter
from babelgate.adapters.acp.write.run_events import EventWriter as AcpWriter
from babelgate.adapters.kit.server.fanout import Encoder, FanoutCache
from babelgate.adapters.kit.server.passages import split_passages
from babelgate.adapters.langchain.codec.stream_modes import StreamParameters
from babelgate.adapters.langchain.server.stream import _Encoder as LangGraph  # pyright: ignore[reportPrivateUsage]
from babelgate.adapters.langchain.write.run_frames import EventWriter as LangGraphWriter
from babelgate.adapters.openai.write.chunks import ChunkWriter
from babelgate.adapters.openai.write.completion import CompletionWriter
from babelgate.canonical import Record
from babelgate.canonical.event import PartDelta
from tests import strategies
from tests.adapters.log import task_of
from tests.examples import examples


def with_more_deltas(records: Sequence[Record], texts: Sequence[str]) -> list[Record]:
    """Return the log with the additional texts after each delta."""
    lengthened: list[Record] = []
    for record in records:
        event = record.event
        events = [event, *(event.replace(text=each) for each in texts)] if isinstance(event, PartDelta) else [event]
        lengthened += [record.replace(seq=0, event=each) for each in events]
    return [record.replace(seq=seq) for seq, record in enumerate(lengthened, 1)]


LOGS = st.builds(with_more_deltas, strategies.records(), st.lists(strategies.texts() | st.just("\u2028"), max_size=5))
CUTS = st.lists(st.integers(1, 12), min_size=1)


def cut(records: Sequence[Record], sizes: Sequence[int]) -> list[Sequence[Record]]:
    batches: list[Sequence[Record]] = []
    while records:
        size = sizes[len(batches) % len(sizes)]
        batches.append(records[:size])
        records = records[size:]
    return batches


def langgraph(*modes: str, run: bool, extended: bool = False, agent_protocol: bool = False) -> Callable[..., Encoder]:
    def make(log: Sequence[Record]) -> Encoder:
        run_id = next(record.run_id for record in log if record.run_id) if run else None
        dialect: Any = "agent-protocol" if agent_protocol else "langgraph"
        view = StreamParameters(
            thread_id="t", owner="o", run_id=run_id, modes=modes, dialect=dialect, extended=extended
        )
        return LangGraph(LangGraphWriter(view))

    return make


def a2a(dialect: Any, *, extended: bool = False) -> Callable[[Sequence[Record]], Encoder]:
    def make(log: Sequence[Record]) -> Encoder:
        return A2A(A2AWriter(task_of(log), "c"), dialect("http://127.0.0.1", "echo"), extended=extended)

    return make


def acp(writer: type[AcpWriter]) -> Callable[[Sequence[Record]], Encoder]:
    return lambda _: Acp(writer(EncodingContext(run_id="r", session_id="s", agent="echo")))


ENCODERS: dict[str, Callable[[Sequence[Record]], Encoder]] = {
    "A2A 1.0": a2a(v1_0.Codec),
    "A2A 0.3": a2a(v0_3.Codec),
    "A2A, extended": a2a(v1_0.Codec, extended=True),
    "ACP": acp(AcpWriter),
    "ACP, extended": acp(RecordedWriter),
    "LangGraph run": langgraph("messages-tuple", run=True),
    "LangGraph run, all modes": langgraph("messages-tuple", "messages", "values", "updates", run=True),
    "LangGraph run, extended": langgraph("messages-tuple", run=True, extended=True),
    "LangGraph thread": langgraph("messages-tuple", run=False),
    "LangGraph thread, modes of each run": langgraph("run_modes", run=False),
    "Agent Protocol": langgraph("messages", run=True, agent_protocol=True),
}


@examples(30)
@given(LOGS, CUTS)
def test_passages_keep_the_order_and_have_one_part_each(log: list[Record], sizes: list[int]) -> None:
    for batch in cut(log, sizes):
        passages = list(split_passages(batch))
        assert [record for passage, _ in passages for record in passage] == batch
        for passage, texts in passages:
            deltas = [each.event for each in passage if isinstance(each.event, PartDelta)]
            if texts:
                assert [event.text for event in deltas] == texts
                assert len({(event.message_id, event.index) for event in deltas}) == 1
                assert not any(event.extra for event in deltas)
            else:
                assert len(passage) == 1


@pytest.mark.parametrize("name", ENCODERS)
@examples(20)
@given(LOGS, CUTS, CUTS)
async def test_encoded_records_are_independent_of_batches(
    name: str, log: list[Record], sizes: list[int], other_sizes: list[int]
) -> None:
    encoder = ENCODERS[name](log)
    expected = [encoder.write(record) for record in log]
    lines = FanoutCache()

    async def rebuild(seq: int) -> Encoder:
        raise AssertionError("the line has all records from the start")

    readers = [(lines.join("view", ENCODERS[name](log), (), rebuild), cut(log, each)) for each in (sizes, other_sizes)]
    for reader, batches in readers:  # the second reader uses the records that the first has encoded, in other batches
        passages = [each for batch in batches for each in await reader.write_all(batch)]
        assert [frame for _, each in passages for frame in each.frames] == [f for each in expected for f in each.frames]
        assert [record for passage, _ in passages for record in passage] == log
        ends = {record.seq: each.stopped for record, each in zip(log, expected, strict=True)}
        for passage, each in passages:
            assert each.stopped == ends[passage[-1].seq]


@examples(30)
@given(LOGS, CUTS)
def test_chunks_of_a_completion_are_independent_of_batches(log: list[Record], sizes: list[int]) -> None:
    run_id = next(record.run_id for record in log if record.run_id) or ""

    def written(batches: Sequence[Sequence[Record]], *, together: bool) -> list[bytes]:
        writer, chunks = CompletionWriter("t", run_id), ChunkWriter("c", 0, "echo", counts=True)
        frames: list[bytes] = []
        for batch in batches:
            for passage, texts in split_passages(batch):
                if together and texts and writer.add_texts(passage[0], texts):
                    frames += chunks.texts(texts, writer.about)
                else:
                    for record in passage:
                        frames += chunks.pieces(writer.write(record), writer.about)
        return [*frames, writer.content.encode()]

    assert written(cut(log, sizes), together=True) == written([log], together=False)
