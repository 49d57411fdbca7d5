"""Pairs of an agent's kind and a caller's protocol: the features that both carry, and those that the gateway adds if
the agent's protocol lacks them.

The published matrix is generated from this module. The pair suite (`tests/pairs`) uses it, too: it skips exactly the
features that a cell declares as lost, and expects all others.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from babelgate.adapters import ADAPTERS, UPSTREAMS
from babelgate.adapters.a2a.carries import CARRIES as A2A
from babelgate.adapters.a2a.carries import EXTENDED as A2A_EXTENDED
from babelgate.adapters.acp.carries import CARRIES as ACP
from babelgate.adapters.acp.carries import EXTENDED as ACP_EXTENDED
from babelgate.adapters.agent_client.carries import CARRIES as AGENT_CLIENT
from babelgate.adapters.aief.carries import CARRIES as AIEF
from babelgate.adapters.aief.carries import EXTENDED as AIEF_EXTENDED
from babelgate.adapters.langchain.carries import CARRIES as LANGCHAIN
from babelgate.adapters.langchain.carries import EXTENDED as LANGCHAIN_EXTENDED
from babelgate.adapters.openai.carries import CARRIES as OPENAI
from babelgate.adapters.openai.carries import EXTENDED as OPENAI_EXTENDED
from babelgate.adapters.openai.carries import RESPONSES_VERSION
from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole

Level = Literal["full", "lossy", "dropped"]

_MARKS: Final[Mapping[Level, str]] = {"full": "●", "lossy": "◐", "dropped": "○"}
_ADDED: Final = "docs/pairs.md, What the gateway adds"
_GRAPHS: Final = "docs/graphs.md"


@dataclass(frozen=True, slots=True)
class Side:
    title: str
    carries: Mapping[Feature, Carry]
    turns: Mapping[Feature, Feature] = field(default_factory=dict[Feature, Feature])
    """Features that arrive in the form of another feature, by the feature: the gateway passes them on as that other
    one."""


@dataclass(frozen=True, slots=True)
class Cell:
    level: Level
    losses: tuple[tuple[Feature, Carry], ...] = ()
    """Losses in the order in which they occur: on the agent's side first."""

    @property
    def why(self) -> str:
        return "; ".join(f"{feature}: {carry.how} ({carry.source})" for feature, carry in self.losses)


_GRAPH: Final[Mapping[Feature, Carry]] = {
    **dict.fromkeys(Feature, FULL),
    Feature.CALLER_TOOLS: lossy(
        "for graphs that read them and call them by interrupts", f"{_GRAPHS}, Input and configuration"
    ),
    Feature.PROGRESS: lossy("only messages that a node adds without a model", f"{_GRAPHS}, Output"),
    Feature.ARTIFACT: lossy("a file is a block of a message", f"{_GRAPHS}, Output"),
    Feature.ARTIFACT_APPEND: dropped("a block of a message is sent whole", f"{_GRAPHS}, Output"),
    Feature.AUTH_REQUEST: lossy("a normal question", f"{_GRAPHS}, Questions"),
}
"""Features that a LangGraph graph can express."""

_LANGGRAPH: Final = "docs/protocols/langgraph.md"
_BRANCH: Final = lossy(
    "a new thread, which receives the transcript; other members of the state are lost",
    f"{_LANGGRAPH}, What is sent",
)
_UNREAD: Final[Mapping[Feature, Carry]] = {
    Feature.TOOL_ACTIVITY: whole(
        "from a Babelgate, in the mode debug; other servers report none", f"{_LANGGRAPH}, What is sent"
    ),
    Feature.STATE: lossy("derived from the log; the agent's state is not read", f"{_LANGGRAPH}, What is read"),
}
"""Features of Agent Protocol servers that the gateway does not read, or reads from some of them only."""

_LINKED: Final = lossy(
    "a Babelgate sends a file larger than its `limits.inline` as a link",
    "docs/protocols/agent-client.md, A coding agent behind the gateway",
)
"""Files of agents that the gateway starts: their stdin and stdout are the only way to them."""

_AGENTS: Final[Mapping[str, Side]] = {
    "python": Side("Python function", dict.fromkeys(Feature, FULL)),
    "graph": Side("LangGraph graph", _GRAPH, {Feature.ARTIFACT: Feature.FILE_BYTES}),
    "a2a-0.3": Side("A2A 0.3", A2A["0.3"]),
    "a2a-1.0": Side("A2A 1.0", A2A["1.0"]),
    "a2a-extended": Side("A2A with the extension", A2A_EXTENDED),
    "acp": Side("ACP", ACP),
    "acp-extended": Side("ACP with the extension", ACP_EXTENDED),
    "aief": Side("AIEF", AIEF),
    "aief-extended": Side("AIEF with the extension", AIEF_EXTENDED),
    "langgraph": Side("LangGraph", LANGCHAIN["langgraph"]),
    "langgraph-extended": Side("LangGraph with the extension", LANGCHAIN_EXTENDED["langgraph"]),
    "agent-protocol": Side("Agent Protocol", {**LANGCHAIN["agent-protocol"], Feature.FORK: _BRANCH, **_UNREAD}),
    "agent-protocol-extended": Side("Agent Protocol with the extension", LANGCHAIN_EXTENDED["agent-protocol"]),
    "openai": Side("OpenAI", OPENAI),
    "agent-client": Side("Agent Client Protocol", {**AGENT_CLIENT, Feature.FILE_BYTES: _LINKED}),
    "openai-extended": Side("OpenAI with the extension", OPENAI_EXTENDED[RESPONSES_VERSION]),
}


def _offered() -> Iterator[tuple[str, Side]]:
    """Yield the protocols of other packages for which the gateway has a server and a client. One table declares what
    such a protocol carries in both directions."""
    listed = {name.partition("-")[0] if name.startswith("a2a-") else name for name in _AGENTS}
    served = {adapter.name: adapter for adapter in ADAPTERS}
    for upstream in UPSTREAMS:
        if upstream.protocol not in listed and upstream.protocol in served:
            carries = served[upstream.protocol].carries
            yield upstream.protocol, Side(upstream.title, carries[list(carries)[-1]])


AGENTS: Final[Mapping[str, Side]] = {**_AGENTS, **dict(_offered())}
"""Kinds of agents, with the features that the gateway reads from each."""

_DIALECTS: Final = {"langgraph": "LangGraph", "agent-protocol": "Agent Protocol"}


def _servers() -> Iterator[tuple[str, Side]]:
    for adapter in ADAPTERS:
        for version, carries in adapter.carries.items():
            if len(adapter.carries) == 1:
                yield adapter.name, Side(adapter.title, carries)
            elif version in _DIALECTS:
                yield version, Side(_DIALECTS[version], carries)
            else:
                yield f"{adapter.name}-{version}", Side(f"{adapter.title} {version}", carries)


SERVERS: Final[Mapping[str, Side]] = dict(_servers())
"""Protocols that callers use, in each of their versions."""

_SUFFIX: Final = "-extended"

PLAIN_AGENTS: Final[Mapping[str, Side]] = {name: side for name, side in AGENTS.items() if not name.endswith(_SUFFIX)}
EXTENDED_AGENTS: Final[Mapping[str, Side]] = {
    **{name: AGENTS[name] for name in ("python", "graph")},
    **{name: side for name, side in AGENTS.items() if name.endswith(_SUFFIX)},
}
"""Kinds of agents for the matrix with the extension: those in the gateway's process, and those behind another gateway
with the extension. `tests/fidelity` measures what arrives from each."""


def _extended_servers() -> Iterator[tuple[str, Side]]:
    extended = [adapter.extended.get(version) for adapter in ADAPTERS for version in adapter.carries]
    for (name, plain), carries in zip(SERVERS.items(), extended, strict=True):
        yield name, plain if carries is None else Side(plain.title, carries)


EXTENDED_SERVERS: Final[Mapping[str, Side]] = dict(_extended_servers())
"""Protocols of callers that request the extension, by name. A protocol without the extension, such as the minimal
runtime, is listed as in `SERVERS`."""

SUPPLIED: Final[Mapping[Feature, Carry]] = {
    Feature.UPLOAD: lossy("stored by the gateway; the agent receives the file with the next input", _ADDED),
    Feature.STREAM: lossy("the output is sent when the agent's server returns it, in one piece", _ADDED),
    Feature.CANCEL: lossy("the gateway stops reading; the agent is not notified", _ADDED),
    Feature.METADATA: lossy("the gateway stores a caller's metadata; the agent has none", _ADDED),
    Feature.STATE: lossy("derived from the log by the gateway; the agent has none", _ADDED),
    Feature.FORK: lossy("a new conversation of the agent, which receives the history up to the fork", _ADDED),
}
"""Losses of features that the gateway adds if the agent's protocol lacks them."""

_GATEWAY_ONLY: Final = frozenset({Feature.REATTACH})
"""Features of the gateway alone, in which agents take no part."""


def cell(agent: Side, server: Side, feature: Feature) -> Cell:
    """Return how a feature arrives at a caller, with the losses on the way."""
    here = FULL if feature in _GATEWAY_ONLY else agent.carries[feature]
    if here.level == "dropped":
        here = SUPPLIED.get(feature, here)
    if here.level == "dropped":
        return Cell("dropped", ((feature, here),))
    then = agent.turns.get(feature, feature)
    there = server.carries[then]
    losses = tuple((at, carry) for at, carry in ((feature, here), (then, there)) if carry.level != "full")
    if there.level == "dropped":
        return Cell("dropped", losses if then is not feature else ((then, there),))
    return Cell("lossy", losses) if losses else Cell("full")


def count(agents: Mapping[str, Side], servers: Mapping[str, Side]) -> Mapping[Level, int]:
    """Return the number of cells of each level, over all pairs."""
    cells = (cell(agent, server, each) for agent in agents.values() for server in servers.values() for each in Feature)
    found = Counter(each.level for each in cells)
    return {level: found[level] for level in _MARKS}


# The page


def page() -> str:
    columns = list(SERVERS.values())
    notes: dict[tuple[str, str], int] = {}
    sections = "\n\n".join(_section(agent, columns, notes) for agent in AGENTS.values())
    listed = "\n".join(f"{number}. {how} ({source})" for (how, source), number in notes.items())
    return f"""# Pairs

This page shows which features of an agent reach a caller, for each kind of agent and each protocol of callers. A
feature arrives whole (●), with a loss (◐) or not at all (○). `make docs` generates the page from the features that the
two protocols carry ([fidelity](fidelity.md)) and those that the gateway adds.

The pair suite (`tests/pairs`) runs each caller with each kind of agent. It skips the features that this matrix declares
as lost, and requires that all others arrive. It also starts runs in one protocol and reads them in another. For Python
functions, it does so with each pair of protocols, and for each other kind of agent with two pairs of callers.

The table shows how many of the {len(Feature)} features arrive. It has one row for each kind of agent, and one column
for each protocol of callers:

{_counts(columns)}

## All pairs together

A cell is one kind of agent, one protocol of callers and one feature. The table counts the cells of all pairs:

{_totals()}

- **Plain:** the agents do not use [the extension](extension.md), and the callers do not request it.
- **With the extension on both sides:** Python functions, graphs, and agents behind each protocol with the extension,
  and callers that request it. The minimal runtime has no extension and counts as plain.

These losses remain with the extension:

{_left()}

## What the gateway adds

If an agent's protocol lacks a feature that its caller's protocol has, the gateway adds it as follows:

{_added()}

A caller can reattach to a stream of any agent, because the gateway reads it from its own log.

{sections}

## Notes

{listed}
"""


def _counts(columns: list[Side]) -> str:
    lines = [f"| | {' | '.join(side.title for side in columns)} |", f"|---|{'|'.join(':-:' for _ in columns)}|"]
    for agent in AGENTS.values():
        counted: list[str] = []
        for side in columns:
            levels = [cell(agent, side, feature).level for feature in Feature]
            counted.append(" ".join(f"{levels.count(level)} {mark}" for level, mark in _MARKS.items()))
        lines.append(f"| [{agent.title}](#{_anchor(agent)}) | {' | '.join(counted)} |")
    return "\n".join(lines)


def _totals() -> str:
    lines = ["| | cells | ● | ◐ | ○ |", "|---|--:|--:|--:|--:|"]
    for title, agents, servers in (
        ("plain", PLAIN_AGENTS, SERVERS),
        ("with the extension on both sides", EXTENDED_AGENTS, EXTENDED_SERVERS),
    ):
        counted = count(agents, servers)
        whole = sum(counted.values())
        shares = (f"{number} ({_percent(number, whole)})" for number in counted.values())
        lines.append(f"| {title} | {whole} | {' | '.join(shares)} |")
    return "\n".join(lines)


def _percent(number: int, whole: int) -> str:
    """Format a share as a percentage, never rounded up."""
    tenths = number * 1000 // whole
    return f"{tenths // 10}.{tenths % 10} %"


def _left() -> str:
    """Return a table of the losses that remain with the extension on both sides, by reason, the most frequent one
    first."""
    reasons: Counter[tuple[Level, Feature, str, str]] = Counter()
    for agent in EXTENDED_AGENTS.values():
        for server in EXTENDED_SERVERS.values():
            for feature in Feature:
                found = cell(agent, server, feature)
                for at, carry in found.losses:
                    reasons[found.level, at, carry.how, carry.source] += 1
    lines = ["| cells | | feature | reason | source |", "|--:|:-:|---|---|---|"]
    for (level, feature, how, source), number in reasons.most_common():
        lines.append(f"| {number} | {_MARKS[level]} | {feature} | {how} | {source} |")
    return "\n".join(lines)


def _added() -> str:
    rows = "\n".join(f"| {feature} | {carry.how} |" for feature, carry in SUPPLIED.items())
    return f"| feature | what the gateway does if the agent lacks it |\n|---|---|\n{rows}"


def _section(agent: Side, columns: list[Side], notes: dict[tuple[str, str], int]) -> str:
    lines = [f"| | {' | '.join(side.title for side in columns)} |", f"|---|{'|'.join(':-:' for _ in columns)}|"]
    for feature in Feature:
        cells = [cell(agent, side, feature) for side in columns]
        if any(each.level != "full" for each in cells):
            lines.append(f"| {feature} | {' | '.join(_noted(each, notes) for each in cells)} |")
    return f"## {_heading(agent)}\n\n" + "\n".join(lines) + "\n\nAll other features arrive whole in every protocol."


def _noted(each: Cell, notes: dict[tuple[str, str], int]) -> str:
    """Return the text of a cell of the matrix: the mark of its level, and the numbers of the notes that explain its
    losses. `notes` has the numbers so far, and gets one for each new reason."""
    numbers = {notes.setdefault((carry.how, carry.source), len(notes) + 1) for _, carry in each.losses}
    return " ".join([_MARKS[each.level], ", ".join(map(str, sorted(numbers)))]).rstrip()


def _heading(agent: Side) -> str:
    return f"An agent that is a {agent.title}" if agent.title in _IN_PROCESS else f"An agent behind {agent.title}"


_IN_PROCESS: Final = frozenset({AGENTS["python"].title, AGENTS["graph"].title})


def _anchor(agent: Side) -> str:
    """Return the anchor that code hosts derive from a heading."""
    return _heading(agent).lower().replace(".", "").replace(" ", "-")
