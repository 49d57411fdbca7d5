"""Requirements on agents, as records in data files: one frozen set for each revision of a protocol.

A set is the file `requirements/<set>.yaml`. A new file there is a new set: sets are listed nowhere else. After a
revision is published, its set changes only by corrections, so that verdicts of different days stay comparable.
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
    """`<set>/<group>.<name>`."""
    level: Level
    section: str
    """Section of the specification, as it numbers or names it."""
    source: str
    """Link to that section."""
    text: str
    """Tested property, as one sentence in our words that is true of an agent that meets the requirement."""
    hint: str
    """Advice on what to change in an agent that breaks it."""
    capability: str = ""
    """Capabilities of the agents that it applies to, separated by commas. `not <capability>` means agents without it.
    """
    probe: str = ""
    """Name of the function that tests it, if a probe does."""
    schemas: tuple[str, ...] = ()
    """Definitions in the schema file of the set that every message of the run must match, if no probe tests it."""
    is_optional: bool = False
    """True if a requirement with schemas does not apply to a run without a matching message."""
    reason: str = ""
    """Reason why it cannot be tested, if there are neither a probe nor schemas."""

    @property
    def name(self) -> str:
        """Id without the set: `<group>.<name>`."""
        return self.id.partition("/")[2]

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class RequirementSet:
    """Requirements of one protocol revision."""

    name: str
    """Name such as `a2a-1.0`: the stem of its requirement, schema and preset files."""
    protocol: str
    version: str
    title: str
    module: str
    """Python module whose `SUITE` holds the probes."""
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
    """Return the names of all sets, in alphabetical order."""
    return tuple(sorted(each.name.removesuffix(".yaml") for each in _FOLDER.iterdir() if each.name.endswith(".yaml")))


@cache
def load_set(name: str) -> RequirementSet:
    """Return the set of a name. Raises KeyError if no set has it, and ValueError if its file is invalid."""
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
