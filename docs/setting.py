"""The tables of docs/configuration.md: every key of the settings, its default, and what it means."""

from collections.abc import Iterator
from typing import Any, Final, cast

from babelgate.gateway.settings.model import schema

_SIZES: Final = ("body", "artifact", "event", "output", "thread", "input", "metadata", "inline", "head")
"""Keys whose default is a number of bytes. `limits.queue.thread` has the name of one, and a small default."""


def tables() -> str:
    """The keys of the file, then those of one agent."""
    made = schema()
    sections = made["$defs"]
    agent = sections["AgentSettings"]
    return "\n".join(
        (
            *_table(_rows(made, sections, "")),
            "",
            "### One agent",
            "",
            *_table(_rows(agent, sections, "")),
        )
    )


def _table(rows: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for key, default, meaning in rows:
        # A line break would end the row.
        text = " ".join(meaning.split()).replace("|", "\\|")
        yield f"| `{key}` | {default or 'none'} | {text} |"


def _rows(section: dict[str, Any], sections: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, each in section["properties"].items():
        inner = sections.get(each.get("$ref", "").rpartition("/")[2])
        if inner is not None:
            yield from _rows(inner, sections, f"{prefix}{name}.")
            continue
        yield f"{prefix}{name}", _default(name, each), each["description"]


def _default(name: str, each: dict[str, Any]) -> str:
    default = each.get("default")
    if isinstance(default, bool):
        return str(default).lower()
    if name in _SIZES and isinstance(default, int) and default >= 2**10:
        return f"{default // 2**20}MB" if default >= 2**20 else f"{default // 2**10}KB"
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, list) and default:
        return f"`[{', '.join(map(_period, cast('list[float]', default)))}]`"
    return f"`{default}`" if isinstance(default, str) else str(default) if isinstance(default, int) else ""


def _period(seconds: float) -> str:
    unit, size = next((unit, size) for unit, size in (("h", 3600), ("m", 60), ("s", 1)) if seconds % size == 0)
    return f"{seconds / size:g}{unit}"
