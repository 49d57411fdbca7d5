"""Tests of the export: exporting and importing a thread takes no more memory than a page of it."""

import tracemalloc
from itertools import chain
from pathlib import Path

import pytest

from babelgate.canonical.event import MessageStarted, PartAdded, PartDelta, ThreadChanged
from babelgate.canonical.message import TextPart
from babelgate.gateway.cli.transfer import export_threads, import_threads
from babelgate.gateway.ids import new_id
from tests.gateway.storage.transfer.lines import record, write_threads

EVENTS = 10_000
WORDS = "x" * 4000


@pytest.mark.slow
def test_an_export_keeps_few_events_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message_events = [MessageStarted(message_id="m"), PartAdded(message_id="m", index=0, part=TextPart(text=""))]
    deltas = (record(seq, PartDelta(message_id="m", index=0, text=WORDS)) for seq in range(4, EVENTS + 1))
    first_records = [record(1, ThreadChanged()), *(record(seq, event) for seq, event in enumerate(message_events, 2))]

    write_threads(tmp_path / "long.jsonl", [(new_id(), chain(first_records, deltas))])
    size = (tmp_path / "long.jsonl").stat().st_size
    tracemalloc.start()
    try:
        assert import_threads(tmp_path / "long.jsonl", None, "sqlite:///gateway.db") == 0
        assert export_threads(tmp_path / "again.jsonl", (), (), (), (), False, None, "sqlite:///gateway.db") == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 40_000_000 and peak < 10_000_000, (size, peak)
    first, second = (
        path.read_bytes().partition(b"\n")[2] for path in (tmp_path / "long.jsonl", tmp_path / "again.jsonl")
    )
    assert first == second
