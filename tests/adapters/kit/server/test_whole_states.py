"""States are sent whole to readers that do not have the previous state."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from babelgate.adapters.kit.extension import URI
from babelgate.canonical.difference import StateChange
from babelgate.canonical.event import Event, Native, StateSaved, StepEnded, StepStarted
from tests.adapters.a2a.site import answer_of, events_of, message, opened
from tests.adapters.a2a.test_extension import HEADERS, envelopes

FIRST = {"items": [1, 2], "name": "x"}
CHANGE = StateChange(since="a", new={"in": {"items": {"keep": 2, "add": [3]}}})
SECOND = {"items": [1, 2, 3], "name": "x"}


async def keeper(text: str) -> AsyncGenerator[Event | str]:
    if text == "first":
        yield StateSaved(checkpoint_id="a", values=FIRST)
    else:
        yield StepStarted(step_id="s", name="work", input_change=CHANGE)
        yield StepEnded(step_id="s", name="work")
        yield StateSaved(checkpoint_id="b", parent_id="a", change=CHANGE)
        yield StateSaved(checkpoint_id="c", parent_id="b", delta={"name": "y"})
        yield Native(protocol="any", event="values", change=CHANGE.replace(member="all"), data={"more": 1})
    yield "done"


async def test_a_state_is_whole_unless_its_reader_has_the_previous(tmp_path: Path) -> None:
    async with opened(tmp_path, {"keeper": keeper}) as site:
        first = await site.result("keeper", "SendMessage", message("first"))
        context = first["task"]["contextId"]
        assert answer_of(first["task"]) == "done"
        request = message("second", contextId=context)
        streamed = await site.rpc("keeper", "SendStreamingMessage", request, headers={HEADERS[0]: URI})
        sent = await site.rpc("keeper", "SendMessage", message("third", contextId=context), headers={HEADERS[0]: URI})
    records = [record for events in envelopes(events_of(streamed)) if events for record in events["events"]]
    for read in (records, sent.json()["result"]["task"]["metadata"][URI]["events"]):
        events: dict[str, Any] = {each["event"]["kind"]: each["event"] for each in reversed(read)}
        assert (events["step_started"]["input"], events["step_started"].get("input_change")) == (SECOND, None)
        assert (events["state_saved"]["values"], events["state_saved"].get("change")) == (SECOND, None)
        assert events["native"]["data"] == {"more": 1, "all": SECOND}
        last = next(each["event"] for each in reversed(read) if each["event"]["kind"] == "state_saved")
        assert last == {"kind": "state_saved", "checkpoint_id": "c", "parent_id": "b", "delta": {"name": "y"}}
