"""Generated parts of the page of the Babelgate extension: the entry of a card, an envelope, the schema."""

import json
from pathlib import Path
from typing import Any, Final

from babelgate.adapters.kit.extension import URI, envelope, params, schema
from babelgate.canonical import Record
from babelgate.canonical.event import PartDelta, ToolStarted

SCHEMA: Final = Path(__file__).parent / "extension.schema.json"
_AT: Final = 1763819775123456


def _block(value: Any) -> str:
    return f"```json\n{json.dumps(value, indent=2)}\n```"


def entry() -> str:
    return _block({"uri": URI, "required": False, "params": params()})


def example() -> str:
    fields: dict[str, Any] = {"at": _AT, "task_id": "t1", "run_id": "r1", "attempt": 1}
    tool_started = ToolStarted(call_id="c1", name="search", input={"q": "rome"}, node="agent")
    delta = PartDelta(message_id="m1", index=0, text="It is ")
    return _block(envelope(16, [Record(seq=17, event=tool_started, **fields), Record(seq=19, event=delta, **fields)]))


def published_schema() -> str:
    return json.dumps(schema(), indent=1) + "\n"
