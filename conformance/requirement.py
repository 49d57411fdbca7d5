"""Requirements that protocols make on agents, read from data files: one set for each protocol version.

A set is the file `requirements/<set>.yaml`. A new file there is a new set: sets are listed nowhere else. After a
protocol version is published, its set changes only by corrections, so that verdicts of different days stay comparable.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

import yaml

from babelgate.conformance.wire.schema import LOADER

Level = Literal["must", "should", "may"]
LEVELS: Final[tuple[Level, ...]] = ("must", "should", "may")


@dataclass(frozen=True, slots=True)
class Requirement:
    id: str
    """Id of the requirement, `<set>/<group>.<name>`, for example `a2a-1.0/card.public`."""
    level: Level
    section: str
    """Number or name of the specification's section that states the requirement."""
    source: str
    """URL of that section."""
    text: str
    """Tested property, as one sentence that is true of an agent that meets the requirement."""
    hint: str
    """Advice on what to change in an agent that does not meet the requirement."""
    capability: str = ""
    """Capabilities, separated by commas, that an agent must declare for the requirement to apply. `not <capability>`
    means that the agent must not declare it. Empty applies to all agents."""
    probe: str = ""
    """Name of the probe function that tests the requirement; empty if no probe does."""
    schemas: tuple[str, ...] = ()
    """Patterns of definitions in the set's schema file. If no probe tests the requirement, it is met if all messages
    with these definitions are valid."""
    is_optional: bool = False
    """True if the requirement does not apply when no message has one of its `schemas`. Otherwise it then counts as not
    shown."""
    reason: str = ""
    """Reason why the requirement cannot be tested; empty if it has a probe or schemas."""

    @property
    def name(self) -> str:
        """Id of the requirement without the set: `<group>.<name>`."""
        return self.id.partition("/")[2]

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class RequirementSet:
    """Requirements that one protocol version makes on agents."""

    name: str
    """Name of the set, such as `a2a-1.0`. The files with its requirements and its schema have this name."""
    protocol: str
    version: str
    title: str
    module: str
    """Python module whose constant `SUITE` (`ProbeSuite`) holds the probes of the set."""
    requirements: tuple[Requirement, ...]

    def __getitem__(self, id: str) -> Requirement:
        """Return a requirement by its id, with or without the name of the set. Raises KeyError for an unknown id."""
        for requirement in self.requirements:
            if id in (requirement.id, requirement.name):
                return requirement
        raise KeyError(id)


_FOLDER: Final = files("babelgate.conformance") / "requirements"
_KEYS: Final = frozenset(
    {"id", "level", "source", "text", "hint", "capability", "probe", "schemas", "optional", "reason"}
)


def set_names() -> tuple[str, ...]:
    """Return the names of all requirement sets, in alphabetical order."""
    return tuple(sorted(each.name.removesuffix(".yaml") for each in _FOLDER.iterdir() if each.name.endswith(".yaml")))


@cache
def load_set(name: str) -> RequirementSet:
    """Return the requirement set with this name. Raises KeyError if there is no such set, and ValueError if its file is
    invalid."""
    if name not in set_names():
        raise KeyError(name)
    text = (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    content: Mapping[str, Any] = yaml.load(text, LOADER)
    sections: Mapping[str, str] = content["sections"]
    requirements = tuple(
        _requirement(name, content["specification"], sections, each) for each in content["requirements"]
    )
    ids = [each.id for each in requirements]
    if twice := {id for id in ids if ids.count(id) > 1}:
        raise ValueError(f"{name}: {', '.join(sorted(twice))} occurs twice")
    return RequirementSet(
        name=name,
        protocol=content["protocol"],
        version=str(content["version"]),
        title=content["title"],
        module=content["module"],
        requirements=requirements,
    )


def _requirement(
    set_name: str, specification: str, sections: Mapping[str, str], entry: Mapping[str, Any]
) -> Requirement:
    id = f"{set_name}/{entry.get('id')}"
    if unknown := entry.keys() - _KEYS:
        raise ValueError(f"{id}: {', '.join(sorted(unknown))}: no such member")
    if missing := {"id", "level", "source", "text", "hint"} - entry.keys():
        raise ValueError(f"{id}: {', '.join(sorted(missing))} is missing")
    if entry["level"] not in LEVELS:
        raise ValueError(f"{id}: level is one of {', '.join(LEVELS)}")
    if sum(1 for way in ("probe", "schemas", "reason") if entry.get(way)) != 1:
        raise ValueError(f"{id}: give one of probe, schemas, or the reason why there is neither")
    section = str(entry["source"])
    if section not in sections:
        raise ValueError(f"{id}: {section} is not among the sections of the set")
    where = sections[section]
    return Requirement(
        id=id,
        level=entry["level"],
        section=section,
        source=where if where.startswith("https://") else specification + where,
        text=_one_line(entry["text"]),
        hint=_one_line(entry["hint"]),
        capability=entry.get("capability", ""),
        probe=entry.get("probe", ""),
        schemas=tuple(entry.get("schemas", ())),
        is_optional=entry.get("optional", False),
        reason=_one_line(entry.get("reason", "")),
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
