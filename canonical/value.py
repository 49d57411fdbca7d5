"""Value objects: the base of every canonical value, frozen, closed, comparable, and stored as JSON.

They are structs of msgspec, made for every token that an agent says: making one checks no types. What comes from
outside is checked where it is read (the wire models of the adapters, `babelgate.gateway.runs.event_check` for agents).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, dataclass_transform
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
else:  # msgspec reads no recursive type; what is JSON by itself is not looked into
    Json = Any
JsonObject = dict[str, Any]
"""A JSON object. The values are JSON; the type checker is not asked to prove it at every use."""

Extra = Mapping[str, Any]
"""Fields that the canonical model has no word for, verbatim, under the name of the protocol they came from:
`{"a2a": {"artifactId": "x"}}`. Only an adapter of the same protocol reads them."""


def is_extra(extra: Extra) -> bool:
    """Whether each of its members is an object or null: the adapters that read them take it for granted."""
    return all(fields is None or isinstance(fields, dict) for fields in extra.values())


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class _ValueType(msgspec.StructMeta):
    """Values are frozen and made by names alone. A class with a `kind` is a member of a union: its JSON says which."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> type:
        if "kind" in namespace:
            config |= {"tag_field": "kind", "tag": namespace["kind"]}
        settings: dict[str, Any] = {
            "frozen": True,
            "kw_only": True,
            "forbid_unknown_fields": True,
            "omit_defaults": True,
        }
        return super().__new__(mcs, name, bases, namespace, **settings | config)


class Value(msgspec.Struct, metaclass=_ValueType):
    """An immutable value. Canonical is closed: an unknown field is a mistake of ours, so only wire models allow
    extras; stored values of other releases are read by `babelgate.canonical.stored`."""

    def replace(self, **changes: Any) -> Self:
        """The same value, but for these fields."""
        return msgspec.structs.replace(self, **changes)

    def members(self) -> JsonObject:
        """What its JSON says, by the names that it has there, as it stands."""
        names = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
        told = {encoded: getattr(self, name) for encoded, name in names}
        tag = self.__struct_config__.tag
        return told if tag is None else {"kind": tag, **told}

    @classmethod
    def of_members(cls, told: Mapping[str, Any]) -> Self:
        """The value that JSON tells of.

        Raises:
            msgspec.ValidationError: if it is none.
        """
        tag = cls.__struct_config__.tag
        return msgspec.convert(told if tag is None else {"kind": tag, **told}, cls)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Nobody changes it, nor the data in it, which may be large."""
        return self


def is_uuid(text: str) -> bool:
    """Whether `text` is a UUID in the spelling that all protocols emit: 36 characters, lower case or upper."""
    if len(text) != 36:
        return False
    try:
        UUID(text)
    except ValueError:
        return False
    return True
