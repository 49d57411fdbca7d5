"""The tables of docs/configuration.md: every key of the settings, its default, and what it means."""

from collections.abc import Iterator
from typing import Any, cast

from babelgate.gateway.settings.model import schema


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
    yield "| key | default | |"
    yield "|---|---|---|"
    for key, default, meaning in rows:
        yield f"| `{key}` | {default} | {meaning.replace('|', chr(92) + '|')} |"


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
    if name in ("body", "artifact", "event", "output", "input", "metadata", "inline", "head") and isinstance(
        default, int
    ):
        return f"{default // 2**20}MB" if default >= 2**20 else f"{default // 2**10}KB"
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, list) and default:
        return f"`[{', '.join(map(_period, cast('list[float]', default)))}]`"
    return f"`{default}`" if isinstance(default, str) else str(default) if isinstance(default, int) else ""


def _period(seconds: float) -> str:
    unit, size = next((unit, size) for unit, size in (("h", 3600), ("m", 60), ("s", 1)) if seconds % size == 0)
    return f"{seconds / size:g}{unit}"
