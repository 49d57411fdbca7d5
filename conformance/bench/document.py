"""YAML reader that records the line of each value, so that an error in a task file can name the line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

_MAX_BYTES: Final = 16 * 2**20
"""Maximum size of a YAML file, in bytes. Chosen."""
_MAX_VALUES: Final = 200_000
"""Maximum number of values in a file, counting aliased values each time. Chosen, because aliases in nine lines of YAML
can expand to a billion values."""
_MAX_DEPTH: Final = 100


class Unreadable(Exception):
    """Error with a one-line message: the file, the line in it, and the cause."""


@dataclass(frozen=True, slots=True)
class Document:
    path: Path
    value: Any
    lines: Mapping[tuple[str, ...], int]
    """Line number of each value, from 1. The key is the path of keys and indices to the value, such as `("tasks", "0",
    "name")`."""

    def where(self, keys: Sequence[object]) -> str:
        """Return `file:line` of the value at the path `keys`, or of the nearest enclosing value that exists."""
        steps = tuple(map(str, keys))
        while steps and steps not in self.lines:
            steps = steps[:-1]
        return f"{self.path}:{self.lines.get(steps, 1)}"


def read_document(path: Path) -> Document:
    """Read a YAML file. Raises Unreadable if it cannot be read, is no YAML, or exceeds a limit."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path}: it cannot be read: {error.strerror}") from None
    if len(raw) > _MAX_BYTES:
        raise Unreadable(f"{path}: it is larger than {_MAX_BYTES // 2**20} MB: put long texts into files of their own")
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
        if len(self.lines) > _MAX_VALUES or len(keys) > _MAX_DEPTH:
            raise Unreadable(f"{self._path}:{line}: there are more values in it than anybody would write")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, keys)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(each, (*keys, str(index))) for index, each in enumerate(node.value)]
        try:
            return self._scalars.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError) as error:
            problem = getattr(error, "problem", None) or str(error)
            raise Unreadable(f"{self._path}:{line}: it is not YAML: {problem}") from None

    def _mapping(self, node: yaml.MappingNode, keys: tuple[str, ...]) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key: Any = self.build(key_node, (*keys, "?"))
            if not isinstance(key, str):
                key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            if key in mapping:
                line = key_node.start_mark.line + 1
                raise Unreadable(f"{self._path}:{line}: the key {key} stands twice: take one of them out")
            mapping[key] = self.build(value_node, (*keys, key))
            # The line of a key is where the key is: its value may begin on the next line.
            self.lines[(*keys, key)] = key_node.start_mark.line + 1
        return mapping
