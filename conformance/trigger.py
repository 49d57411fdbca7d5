"""Triggers: inputs that make an agent show a behaviour, so that probes can judge it.

A trigger is a text and, if the server has several agents, the agent that shows the behaviour. A file of triggers, or a
preset (`presets/<name>.yaml`), maps behaviours to triggers:

    plain: Hello                                  # a text
    question: {text: Book me a flight, answer: Rome}
    long: {text: "30", agent: slow}               # another agent
    auth: null                                    # the agent never does it
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, cast

import yaml

BEHAVIOURS: Final[Mapping[str, str]] = {
    "plain": "answers and is done",
    "stream": "answers in several pieces",
    "question": "asks its caller a question, and continues after the answer",
    "questions": "asks two things at once",
    "approval": "asks for an approval whose answer has a schema",
    "auth": "asks its caller to authenticate",
    "fail": "fails",
    "reject": "declines to do it",
    "long": "works for at least ten seconds, so that it can be watched and cancelled",
    "silence": "is silent for some seconds in the middle of its answer",
    "files": "returns a file, and returns the files that it receives",
    "data": "answers with structured data",
    "steps": "reports its progress while it works",
    "tools": "uses one of its tools",
    "calls": "calls a tool that its caller offers",
    "message": "answers with a message instead of a task",
    "links": "answers with a link to one of its resources",
    "change": "changes one of its resources",
    "resource": "has a resource at the URI that is the text of the trigger",
}
"""Names of the behaviours that probes may need, each with a description that follows "the agent"."""


class TriggerError(ValueError):
    """Error for an invalid file of triggers or an unknown behaviour; the message names the place."""


@dataclass(frozen=True, slots=True)
class Trigger:
    text: str
    agent: str = ""
    """Name of the agent of the server that shows the behaviour. Empty means the agent that is judged."""
    answer: Any = "Babelgate"
    """Answer to the question that the agent asks."""
    data: Any = None
    """Structured input, for agents that need more than a text, or another form."""
    is_from_user: bool = True
    """False for the default trigger. Then it is unknown whether the agent shows the behaviour."""
    is_never: bool = False
    """True if the user states that the agent never shows this behaviour. Requirements that need the behaviour then do
    not apply."""


@dataclass(frozen=True, slots=True)
class Triggers:
    by_behaviour: Mapping[str, Trigger] = field(default_factory=dict[str, Trigger])

    def __contains__(self, behaviour: str) -> bool:
        return behaviour in self.by_behaviour

    def __getitem__(self, behaviour: str) -> Trigger:
        """Return the trigger for a behaviour, or the text `Hello` if the user gave none. Raises KeyError for an unknown
        behaviour."""
        if behaviour not in BEHAVIOURS:
            raise KeyError(behaviour)
        return self.by_behaviour.get(behaviour, Trigger("Hello", is_from_user=False))

    def with_texts(self, texts: Mapping[str, str]) -> "Triggers":
        """Return a copy in which behaviours have the texts of the command line, by behaviour. Raises TriggerError for
        an unknown behaviour."""
        merged = dict(self.by_behaviour)
        for behaviour, text in texts.items():
            if behaviour not in BEHAVIOURS:
                raise TriggerError(f"{behaviour}: no such behaviour; there are {', '.join(BEHAVIOURS)}")
            merged[behaviour] = replace(merged.get(behaviour, Trigger(text)), text=text, is_never=False)
        return Triggers(merged)

    def without(self, behaviours: Iterable[str]) -> "Triggers":
        """Return a copy that states that the agent never shows some behaviours. Raises TriggerError for an unknown
        behaviour."""
        merged = dict(self.by_behaviour)
        for behaviour in behaviours:
            if behaviour not in BEHAVIOURS:
                raise TriggerError(f"{behaviour}: no such behaviour; there are {', '.join(BEHAVIOURS)}")
            merged[behaviour] = Trigger("", is_never=True)
        return Triggers(merged)


_PRESETS: Final = files("babelgate.conformance") / "presets"


def preset_names() -> tuple[str, ...]:
    return tuple(sorted(each.name.removesuffix(".yaml") for each in _PRESETS.iterdir() if each.name.endswith(".yaml")))


def read_triggers(source: str | None) -> Triggers:
    """Return the triggers in a preset or a file, which `source` names. If it is None, return empty triggers. Raises
    TriggerError if there is no such preset or file, or if it is invalid."""
    if source is None:
        return Triggers()
    try:
        if source in preset_names():
            text = (_PRESETS / f"{source}.yaml").read_text(encoding="utf-8")
        else:
            text = Path(source).read_text(encoding="utf-8")
        content: Any = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise TriggerError(f"{source}: neither a file nor a preset ({', '.join(preset_names())}): {error}") from None
    except yaml.YAMLError as error:
        raise TriggerError(f"{source}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise TriggerError(f"{source}: a file of triggers is a mapping of behaviours to texts")
    entries = cast("dict[Any, Any]", content)
    return Triggers({str(name): _trigger(f"{source}: {name}", str(name), each) for name, each in entries.items()})


def _trigger(place: str, behaviour: str, value: Any) -> Trigger:
    if behaviour not in BEHAVIOURS:
        raise TriggerError(f"{place}: no such behaviour; there are {', '.join(BEHAVIOURS)}")
    if isinstance(value, str):
        return Trigger(value)
    if value is None:
        return Trigger("", is_never=True)
    if not isinstance(value, dict) or not isinstance(cast("dict[str, Any]", value).get("text"), str):
        raise TriggerError(f"{place}: expected a text, or a mapping with text and optionally agent, answer, data")
    entry = cast("dict[str, Any]", value)
    if unknown := entry.keys() - {"text", "agent", "answer", "data"}:
        raise TriggerError(f"{place}: {', '.join(sorted(unknown))}: no such member")
    return Trigger(**entry)
