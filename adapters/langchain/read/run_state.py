"""State of one run that all its readers share."""

from dataclasses import dataclass, field

from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.adapters.langchain.read.messages import Place
from babelgate.canonical.value import Json


@dataclass(slots=True)
class RunState:
    """Newest state of the run's thread, and who sends it."""

    dialect: Dialect
    is_server: bool
    """A server sends the frames, possibly another Babelgate. False for a graph in this process."""
    run_id: str | None = None
    """The server's id of the run."""
    values: Json = None
    """Values of the newest state."""
    next: tuple[str, ...] = ()
    """Nodes that follow the newest checkpoint."""
    checkpoint_id: str = ""
    """Id of the newest checkpoint; empty if the frames contain none."""
    ended_nodes: dict[Place, list[str]] = field(default_factory=dict[Place, list[str]])
    """Nodes that have ended since the last new checkpoint, by place."""
