"""Settings whose values come from files of secrets: where they are, and how they are hidden."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from babelgate.canonical.value import JsonObject

_LONG: Final = 16
"""Minimum length of one line of a file that counts as a separate secret, in characters. Chosen."""


@dataclass(frozen=True, slots=True)
class FileReferences:
    """References to files in the settings: `${file:…}`, and variables such as `BABELGATE_KEYS_FILE`."""

    locations: frozenset[tuple[str, ...]] = frozenset()
    """Locations of the values that contain one."""
    contents: frozenset[str] = frozenset()
    """Contents of the files."""

    def __or__(self, other: "FileReferences") -> "FileReferences":
        """Return the references of both."""
        return FileReferences(self.locations | other.locations, self.contents | other.contents)

    @property
    def secrets(self) -> Sequence[str]:
        """Texts that must not be shown: the contents, and their long lines."""
        lines = [line for content in self.contents for line in content.splitlines() if len(line) >= _LONG]
        return [*self.contents, *lines]

    def hide(self, values: JsonObject, word: str) -> JsonObject:
        """Return the JSON of settings with a word instead of each value that contains a reference."""
        for location in self.locations:
            values = cast("JsonObject", _hide(values, location, word))
        return values


def _hide(value: object, location: Sequence[str], word: str) -> object:
    """Hide what is at a location. A value that is not as deep as its location, such as a list that was written as one
    text, is hidden as a whole."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        return {
            name: _hide(each, location[1:], word) if not location or name == location[0] else each
            for name, each in members.items()
        }
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[object]", value)
        return [
            _hide(each, location[1:], word) if location[:1] in ((), (str(number),)) else each
            for number, each in enumerate(items)
        ]
    return None if value is None else word
