"""State of one run that all readers of its frames share."""

from dataclasses import dataclass, field

from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.adapters.langchain.read.messages import Place
from babelgate.canonical.value import Json


@dataclass(slots=True)
class RunState:
    """State of one run's thread, as the frames have shown it so far."""

    dialect: Dialect
    is_server: bool
    """True if a server sends the frames, possibly another Babelgate. False for a graph in this process."""
    run_id: str | None = None
    """The server's id of the run; None until a frame contains it."""
    values: Json = None
    """Values of the newest state of the outermost graph."""
    next: tuple[str, ...] = ()
    """Nodes that follow the newest checkpoint of the outermost graph."""
    checkpoint_id: str = ""
    """Id of the newest checkpoint of the outermost graph; empty if no frame contained one."""
    ended_nodes: dict[Place, list[str]] = field(default_factory=dict[Place, list[str]])
    """Names of the nodes that have ended since the last checkpoint of their graph, by the graph's namespace."""
