"""YAML with the line of everything in it, so that a mistake can be shown where it stands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

_LIMIT: Final = 16 * 2**20
"""Bytes of a file."""
_VALUES: Final = 200_000
"""Values in a file, with those behind its aliases counted each time: nine lines of YAML can mean a billion."""
_DEPTH: Final = 100


class Unreadable(Exception):
    """One line: the file, the line in it, and what is wrong."""


@dataclass(frozen=True, slots=True)
class Document:
    path: Path
    value: Any
    lines: Mapping[tuple[str, ...], int]
    """The line, from 1, of every value, by the keys and indices that lead to it."""

    def where(self, keys: Sequence[object]) -> str:
        """`file:line`, of a value or of the nearest one around it."""
        steps = tuple(map(str, keys))
        while steps and steps not in self.lines:
            steps = steps[:-1]
        return f"{self.path}:{self.lines.get(steps, 1)}"


def read_document(path: Path) -> Document:
    """Raises Unreadable."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path}: it cannot be read: {error.strerror}") from None
    if len(raw) > _LIMIT:
        raise Unreadable(f"{path}: it is larger than {_LIMIT // 2**20} MB: put long texts into files of their own")
    try:
        node = yaml.compose(raw.decode(), yaml.SafeLoader)
    except UnicodeDecodeError:
        raise Unreadable(f"{path}: it is not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise Unreadable(f"{path}:{line}: it is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise Unreadable(f"{path}:1: it is not YAML: {str(error).splitlines()[0]}") from None
    builder = _Builder(path)
    value = None if node is None else builder.build(node, ())
    return Document(path, value, builder.lines)


class _Builder:
    def __init__(self, path: Path) -> None:
        self.lines: dict[tuple[str, ...], int] = {}
        self._path = path
        self._scalars: Any = yaml.SafeLoader("")

    def build(self, node: yaml.Node, keys: tuple[str, ...]) -> Any:
        line: int = node.start_mark.line + 1
        self.lines[keys] = line
        if len(self.lines) > _VALUES or len(keys) > _DEPTH:
            raise Unreadable(f"{self._path}:{line}: there are more values in it than anybody would write")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, keys)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(each, (*keys, str(index))) for index, each in enumerate(node.value)]
        try:
            return self._scalars.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError) as error:
            said = getattr(error, "problem", None) or str(error)
            raise Unreadable(f"{self._path}:{line}: it is not YAML: {said}") from None

    def _mapping(self, node: yaml.MappingNode, keys: tuple[str, ...]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key: Any = self.build(key_node, (*keys, "?"))
            if not isinstance(key, str):
                key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            if key in made:
                line = key_node.start_mark.line + 1
                raise Unreadable(f"{self._path}:{line}: the key {key} stands twice: take one of them out")
            made[key] = self.build(value_node, (*keys, key))
            # Of a key, the line where it stands: its value may begin on the next one.
            self.lines[(*keys, key)] = key_node.start_mark.line + 1
        return made
