"""Golden files of LangGraph's dialect and the Agent Protocol: a difference is a change of the wire format.

For each case, `canonical.json` is the log. `langgraph.http` and `agent-protocol.http` have the stream of each run in
every mode, the result of a wait for it, and the last state of the thread. `pytest --accept` writes these two.
"""

import json
from typing import Any

import pytest
from pydantic_core import to_json

from babelgate.adapters.kit.client.sse import Frames
from babelgate.adapters.langchain.codec import agent_protocol
from babelgate.adapters.langchain.codec import state as codec
from babelgate.adapters.langchain.codec.stream_modes import Dialect, StreamParameters
from babelgate.adapters.langchain.write.run_frames import EventWriter
from babelgate.canonical import Record, StateHistory
from babelgate.canonical.event import RunCreated
from tests.adapters.langchain.log import EVERYTHING, small_frames
from tests.goldens import CASES, GOLDEN, compare, log_of

THREAD = "11111111-1111-4111-8111-111111111111"
MODES: dict[Dialect, tuple[str, ...]] = {
    "langgraph": EVERYTHING,
    "agent-protocol": ("values", "messages-tuple", "updates", "debug", "custom"),
}


def written(log: list[Record], dialect: Dialect) -> str:
    pieces: list[str] = []
    for record in log:
        if isinstance(record.event, RunCreated):
            pieces += [f"# run {record.event.run_id}: stream\n", streamed(log, dialect, record.event.run_id)]
            pieces += [f"# run {record.event.run_id}: wait\n", waited(log, dialect, record.event)]
    return "".join([*pieces, "# state\n", state(log, dialect)])


def streamed(log: list[Record], dialect: Dialect, run_id: str) -> str:
    writer = EventWriter(
        StreamParameters(thread_id=THREAD, owner="alice", run_id=run_id, modes=MODES[dialect], dialect=dialect)
    )
    frames = b"".join(frame for record in log for _, frame in small_frames(writer, record))
    assert all(json.loads(each.data) is not None for each in Frames().all([frames]))
    return frames.decode()


def waited(log: list[Record], dialect: Dialect, created: RunCreated) -> str:
    """Return the result of a wait for the run: the state at its end, without later changes."""
    history = StateHistory(THREAD, "alice")
    for record in log:
        history.apply(record)
        run = history.fold.runs.get(created.run_id)
        if run is not None and run.has_ended:
            break
    run = history.fold.runs[created.run_id]
    if dialect == "agent-protocol":
        return line(agent_protocol.encode_wait(history, run, created))
    return line(codec.wait_result(history, run))


def state(log: list[Record], dialect: Dialect) -> str:
    history = StateHistory(THREAD, "alice", log)
    head = history.head
    if dialect == "agent-protocol":
        assert head is not None
        return line(agent_protocol.encode_state(THREAD, head))
    return line(codec.encode_state(THREAD, head, [] if head is None else history.then(head)))


def line(value: Any) -> str:
    return to_json(value).decode() + "\n"


@pytest.mark.parametrize("dialect", MODES)
@pytest.mark.parametrize("case", CASES)
def test_the_output_for_a_log_matches_the_golden_file(case: str, dialect: Dialect, accept: bool) -> None:
    path, text = GOLDEN / case / f"{dialect}.http", written(log_of(case), dialect)
    compare(path, text, accept)
