"""What an agent must do, as records in data files: one frozen set for each revision of a protocol.

A set is `requirements/<set>.yaml`; a new file there is a new set, and nothing else lists them. Once a revision of a
protocol is published its set does not change but by corrections, so that verdicts of different days can be compared.
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
    """Of the specification, as it numbers or names it."""
    source: str
    """A link that leads to that section."""
    text: str
    """What is tested, in our words: one sentence that is true of an agent that keeps it."""
    hint: str
    """What to change in an agent that does not."""
    capability: str = ""
    """It applies only to agents with this capability, or with `not <capability>` only to those without; several are
    parted by commas."""
    probe: str = ""
    """The function that tests it."""
    schemas: tuple[str, ...] = ()
    """Or the definitions of the set's schema file that every message of the run has to keep."""
    is_optional: bool = False
    """Of schemas: where no message holds such a thing, it says nothing of the agent."""
    reason: str = ""
    """Or why no probe can."""

    @property
    def name(self) -> str:
        """Without the set: `<group>.<name>`."""
        return self.id.partition("/")[2]

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class RequirementSet:
    """One revision of one protocol."""

    name: str
    """`a2a-1.0`; the file names of its requirements, schemas and presets begin with it."""
    protocol: str
    version: str
    title: str
    module: str
    """The Python module whose `SUITE` holds the probes."""
    requirements: tuple[Requirement, ...]

    def __getitem__(self, id: str) -> Requirement:
        """By its id, with or without the set's name before it. Raises KeyError."""
        for requirement in self.requirements:
            if id in (requirement.id, requirement.name):
                return requirement
        raise KeyError(id)


_FOLDER: Final = files("babelgate.conformance") / "requirements"
_KEYS: Final = frozenset(
    {"id", "level", "source", "text", "hint", "capability", "probe", "schemas", "optional", "reason"}
)


def set_names() -> tuple[str, ...]:
    """All sets there are, in the order of the alphabet."""
    return tuple(sorted(each.name.removesuffix(".yaml") for each in _FOLDER.iterdir() if each.name.endswith(".yaml")))


@cache
def load_set(name: str) -> RequirementSet:
    """Raises KeyError for a name that is no set's, ValueError for a file that is wrong, naming the place."""
    if name not in set_names():
        raise KeyError(name)
    text = (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    given: Mapping[str, Any] = yaml.load(text, LOADER)
    sections: Mapping[str, str] = given["sections"]
    requirements = tuple(_requirement(name, given["specification"], sections, each) for each in given["requirements"])
    ids = [each.id for each in requirements]
    if twice := {id for id in ids if ids.count(id) > 1}:
        raise ValueError(f"{name}: {', '.join(sorted(twice))} stands there twice")
    return RequirementSet(
        name=name,
        protocol=given["protocol"],
        version=str(given["version"]),
        title=given["title"],
        module=given["module"],
        requirements=requirements,
    )


def _requirement(
    set_name: str, specification: str, sections: Mapping[str, str], given: Mapping[str, Any]
) -> Requirement:
    id = f"{set_name}/{given.get('id')}"
    if unknown := given.keys() - _KEYS:
        raise ValueError(f"{id}: {', '.join(sorted(unknown))}: no such member")
    if missing := {"id", "level", "source", "text", "hint"} - given.keys():
        raise ValueError(f"{id}: {', '.join(sorted(missing))} is missing")
    if given["level"] not in LEVELS:
        raise ValueError(f"{id}: level is one of {', '.join(LEVELS)}")
    if sum(1 for way in ("probe", "schemas", "reason") if given.get(way)) != 1:
        raise ValueError(f"{id}: give one of probe, schemas, or the reason why there is neither")
    section = str(given["source"])
    if section not in sections:
        raise ValueError(f"{id}: {section} is not among the sections of the set")
    where = sections[section]
    return Requirement(
        id=id,
        level=given["level"],
        section=section,
        source=where if where.startswith("https://") else specification + where,
        text=_one_line(given["text"]),
        hint=_one_line(given["hint"]),
        capability=given.get("capability", ""),
        probe=given.get("probe", ""),
        schemas=tuple(given.get("schemas", ())),
        is_optional=given.get("optional", False),
        reason=_one_line(given.get("reason", "")),
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
