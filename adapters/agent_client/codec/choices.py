"""Options of a session: the members of an agent's configuration that have a few values ↔ `configOptions`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from babelgate.adapters.agent_client.codec.content import invalid
from babelgate.canonical import AgentInfo
from babelgate.canonical.json import as_object
from babelgate.canonical.printable import printable
from babelgate.canonical.value import Json, JsonObject

_MAX_OPTIONS: Final = 20
"""Maximum number of options of a session. Chosen: editors show each one above the prompt."""
_MAX_VALUES: Final = 100
"""Maximum number of values of one option; a member with more is not offered. Chosen."""
_MAX_NAME: Final = 100
_MAX_ABOUT: Final = 500
"""Maximum length of the description of an option, in characters; `_MAX_NAME` is that of its name. Chosen."""
_REF: Final = "#/$defs/"


@dataclass(frozen=True, slots=True)
class SessionOption:
    """One member of an agent's configuration that a user can choose."""

    id: str
    schema: JsonObject
    values: tuple[str, ...]
    """Values to choose from. Empty for a boolean."""

    @property
    def default(self) -> Json:
        """Value before a choice: the default of the schema, else false or the first value."""
        default = self.schema.get("default")
        if not self.values:
            return default is True
        return default if default in self.values else self.values[0]

    def encode(self, chosen: Mapping[str, Json]) -> JsonObject:
        """Return the option as one of `configOptions`. `chosen` has the user's choices by option id."""
        current = chosen.get(self.id, self.default)
        option: JsonObject = {"id": self.id, "name": printable(str(self.schema.get("title") or self.id), _MAX_NAME)}
        if isinstance(about := self.schema.get("description"), str) and about:
            option["description"] = printable(about, _MAX_ABOUT)
        if not self.values:
            return {**option, "type": "boolean", "currentValue": current}
        offers: list[JsonObject] = [{"value": each, "name": printable(each, _MAX_NAME)} for each in self.values]
        return {**option, "type": "select", "currentValue": current, "options": cast("Json", offers)}

    def can_be(self, value: Json) -> bool:
        return value in self.values if self.values else isinstance(value, bool)


def session_options(info: AgentInfo, *, has_booleans: bool) -> Sequence[SessionOption]:
    """Return the options of an agent's sessions: the texts with an enumeration in its configuration schema and, for a
    client that shows them, the booleans."""
    schema = info.schemas.get("config", {})
    return [*_options(schema, has_booleans=has_booleans)][:_MAX_OPTIONS]


def _options(schema: JsonObject, *, has_booleans: bool) -> Iterator[SessionOption]:
    definitions = as_object(schema.get("$defs"))
    for name, member in as_object(schema.get("properties")).items():
        found = as_object(member)
        if isinstance(ref := found.get("$ref"), str):
            found = {**as_object(definitions.get(ref.removeprefix(_REF))), **found}
        listed: object = found.get("enum")
        values = cast("list[object]", listed) if isinstance(listed, list) else []
        texts = tuple(each for each in values if isinstance(each, str))
        if 0 < len(texts) == len(values) <= _MAX_VALUES:
            yield SessionOption(name, found, texts)
        elif found.get("type") == "boolean" and has_booleans:
            yield SessionOption(name, found, ())


def check_choice(options: Sequence[SessionOption], option_id: str, value: Json) -> None:
    """Check the value that a user has chosen for an option. Raises invalid if the session has no such option, or the
    option no such value."""
    option = next((each for each in options if each.id == option_id), None)
    if option is None:
        names = ", ".join(each.id for each in options) or "none"
        raise invalid("configId", f"the session has no such option; it has {names}")
    if not option.can_be(value):
        expected = ", ".join(option.values) or "a boolean"
        raise invalid("value", f"expected {expected}")


def current_values(options: Sequence[SessionOption], chosen: Mapping[str, Json]) -> JsonObject:
    """Return the members of the agent's configuration for the values that the user has chosen. An option without a
    choice is left out, unless its schema has no default: then it has the option's `default`."""
    return {
        each.id: chosen.get(each.id, each.default)
        for each in options
        if each.id in chosen or "default" not in each.schema
    }
