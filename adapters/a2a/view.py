"""What A2A shows of a task, in no version's spelling: the task itself, and the two kinds of update that follow it on a
stream. `writer` makes these of records; each dialect spells them (`dialect`, `codec*`)."""

from dataclasses import dataclass, field
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from canonical import Artifact, Message, TaskState
from canonical.state import TERMINAL, WAITING
from canonical.value import JsonObject

__all__ = ("PROTOCOL", "ArtifactUpdate", "Snapshot", "Status", "StatusUpdate", "Update", "derived_id")

PROTOCOL: Final = "a2a"


def derived_id(*names: str) -> str:
    """An id for something that A2A wants an id of and the log has none for: the same for the same names."""
    return str(uuid5(NAMESPACE_URL, "/".join(names)))


@dataclass(frozen=True, slots=True)
class Status:
    state: TaskState
    at: int
    """Microseconds since 1970, UTC."""
    message: Message | None = None

    @property
    def stops(self) -> bool:
        """Terminal, or interrupted: what a blocking send waits for and where a stream ends."""
        return self.state in TERMINAL or self.state in WAITING


@dataclass(frozen=True, slots=True)
class Snapshot:
    task_id: str
    context_id: str
    status: Status
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: JsonObject = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    task_id: str
    context_id: str
    status: Status
    metadata: JsonObject = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class ArtifactUpdate:
    """One piece of an artifact: with `append` it goes to the end of what has the same id."""

    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last: bool = False


Update = Snapshot | StatusUpdate | ArtifactUpdate
