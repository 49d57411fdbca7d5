"""Requests that read a run over LangGraph Platform and the Agent Protocol."""

from collections.abc import Mapping, Sequence
from typing import Final

from babelgate.adapters.kit.adapter import Look, LookTarget, ReadRequest
from babelgate.canonical import Feature

_HIDDEN: Final[Mapping[Feature, str]] = dict[Feature, str].fromkeys(
    (Feature.ARTIFACT, Feature.CUSTOM, Feature.PROGRESS, Feature.STEP, Feature.TOOL_ACTIVITY), "in streams only"
)
"""Features that a run's values do not show, with the words that the header `Babelgate-Loss` has for them."""
_MODES: Final = {
    "langgraph": ("values", "messages-tuple", "updates", "tasks", "custom"),
    "agent-protocol": ("values", "messages", "updates", "debug", "custom"),
}
"""Stream modes that together show everything a dialect can carry, by dialect."""


def looks(target: LookTarget) -> Sequence[Look]:
    """Return two reads of the run for each dialect: its final values, and its stream from the first event. A run that
    has not ended has no final values, so the first one reads the run object itself."""
    run_id, thread_id = target.run.run_id, target.run.thread_id or target.task.thread_id
    paths = {"langgraph": f"/threads/{thread_id}/runs/{run_id}", "agent-protocol": f"/agent-protocol/runs/{run_id}"}
    titles = {"langgraph": ("LangGraph", "join"), "agent-protocol": ("Agent Protocol", "wait")}
    found: list[Look] = []
    for version, path in paths.items():
        title, join = titles[version]
        modes = "&".join(f"stream_mode={mode}" for mode in _MODES[version])
        stream = ReadRequest(path=f"{path}/stream?{modes}", headers={"Last-Event-ID": "-1"})
        has_ended = target.run.has_ended
        found += [
            Look(
                version=version,
                title=f"{title} {join if has_ended else 'run'}",
                request=ReadRequest(path=f"{path}/{join}" if has_ended else path),
                hidden=_HIDDEN,
            ),
            Look(version=version, title=f"{title} stream", form="stream", request=stream),
        ]
    return found
