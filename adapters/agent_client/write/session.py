"""Records of a thread → the updates with which `session/load` repeats a conversation."""

from collections.abc import Callable, Iterable, Iterator, Set

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.write.updates import UpdateWriter
from babelgate.canonical import Fault, Record
from babelgate.canonical.event import RunCreated, RunEnded
from babelgate.canonical.replay import without_voided


def session_updates(
    records: Iterable[Record], hidden_runs: Set[str], url_of: Callable[[str], str]
) -> Iterator[w.Update]:
    """Yield the updates for the records of a thread, without those of `hidden_runs`, which are on other branches."""
    writer = UpdateWriter(url_of, None, is_replay=True)
    for record in without_voided(records):
        if record.run_id in hidden_runs:
            continue
        event = record.event
        if isinstance(event, RunCreated):
            if event.run_id in hidden_runs:
                continue
            if event.cause != "answer":
                writer.begin()
            for message in event.messages:
                if message.role == "user":
                    yield from writer.user_updates(message)
        elif isinstance(event, RunEnded) and event.fault is not None:
            yield _failure(event.fault, record.run_id)
        else:
            yield from writer.write(record)


def _failure(fault: Fault, run_id: str | None) -> w.Update:
    """Return the update that shows why a run failed. Its prompt was answered with an error, which has no update."""
    block = {"type": "text", "text": f"Error: {fault.message}"}
    own = {"fault": {"code": str(fault.code), "message": fault.message}}
    update: w.Update = {"sessionUpdate": "agent_message_chunk", "content": block}
    return {**update, "messageId": f"{run_id}/error", "_meta": {w.OWN: own}}
