"""References from the settings to secret files: in which values they are, and how these values are hidden."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from babelgate.canonical.value import JsonObject

_LONG: Final = 16
"""Minimum length of a line of a secret file that counts as a separate secret, in characters. Chosen."""


@dataclass(frozen=True, slots=True)
class FileReferences:
    """References to secret files in the settings: `${file:…}`, and variables such as `BABELGATE_KEYS_FILE`."""

    locations: frozenset[tuple[str, ...]] = frozenset()
    """Locations of the settings that contain such a reference, such as `("keys", "ann")`."""
    contents: frozenset[str] = frozenset()
    """Contents of the files to which the settings refer."""

    def __or__(self, other: "FileReferences") -> "FileReferences":
        """Return the references of this object and of `other` together."""
        return FileReferences(self.locations | other.locations, self.contents | other.contents)

    @property
    def secrets(self) -> Sequence[str]:
        """Texts that must not be shown: the contents of the files, and each of their long lines."""
        lines = [line for content in self.contents for line in content.splitlines() if len(line) >= _LONG]
        return [*self.contents, *lines]

    def hide(self, values: JsonObject, word: str) -> JsonObject:
        """Return the settings as JSON with `word` instead of each value that contains a reference."""
        for location in self.locations:
            values = cast("JsonObject", _hide(values, location, word))
        return values


def _hide(value: object, location: Sequence[str], word: str) -> object:
    """Return `value` with `word` instead of the value at a location below it.

    If the location leads further than the value, such as into a list that was written as one text, the whole value is
    replaced."""
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
