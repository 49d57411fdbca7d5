"""Value objects: the base of every canonical value, immutable, closed, comparable, and stored as JSON.

They are msgspec structs. Construction checks no types, because values are created for every token of an agent. External
data is checked where it is read: in the adapters' wire models, and in `babelgate.gateway.runs.event_check` for agents.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, dataclass_transform
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
else:  # msgspec supports no recursive types, and does not look into values of type Any
    Json = Any
JsonObject = dict[str, Any]
"""JSON object. Its values are JSON, but the type checker does not have to prove that at every use."""

Extra = Mapping[str, Any]
"""Fields that the canonical model does not define, verbatim, by the protocol they came from. Only an adapter of the
same protocol reads them. Example: `{"a2a": {"artifactId": "x"}}`."""


def is_extra(extra: Extra) -> bool:
    """Return True if the value of each protocol is an object or null, as adapters require of an `extra`."""
    return all(fields is None or isinstance(fields, dict) for fields in extra.values())


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class _ValueType(msgspec.StructMeta):
    """Metaclass that makes canonical classes immutable and keyword-only. A class that defines `kind` is a member of a
    union: its JSON includes the `kind`, by which decoders tell the classes apart."""

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
    """Base class of all canonical values, which are immutable.

    The canonical model is closed: an unknown field is a programming error, so only wire models allow extra fields.
    `babelgate.canonical.stored` reads stored values of other releases.
    """

    def replace(self, **changes: Any) -> Self:
        """Return a copy of the value with these fields changed."""
        return msgspec.structs.replace(self, **changes)

    def members(self) -> JsonObject:
        """Return the fields as the members of the JSON object that the value is encoded to: under their encoded names,
        with the tag `kind` if the class has one. The values of the fields are not encoded."""
        names = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
        encoded_members = {encoded: getattr(self, name) for encoded, name in names}
        tag = self.__struct_config__.tag
        return encoded_members if tag is None else {"kind": tag, **encoded_members}

    @classmethod
    def of_members(cls, encoded_members: Mapping[str, Any]) -> Self:
        """Return the value with these JSON members.

        Raises:
            msgspec.ValidationError: if they do not describe a value of this class.
        """
        tag = cls.__struct_config__.tag
        return msgspec.convert(encoded_members if tag is None else {"kind": tag, **encoded_members}, cls)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return the value itself: it is immutable, and its data may be large."""
        return self


def is_uuid(text: str) -> bool:
    """Return True if the text is a UUID in the form that all protocols use: 36 characters, lower or upper case."""
    if len(text) != 36:
        return False
    try:
        UUID(text)
    except ValueError:
        return False
    return True
