"""Plots for the HTML report, as inline SVG: one row per item, with its label at the left and its value as text at the
right."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_LABEL: Final = 200
_PLOT: Final = 420
_WORDS: Final = 180
_ROW: Final = 22
_MAX_LABEL: Final = 30
"""Maximum length of a label, in characters; the tooltip shows the whole label. Chosen."""


@dataclass(frozen=True, slots=True)
class Span:
    """Row of the plot `spans`: a value with its lower and upper bound. `words` is the value as text."""

    label: str
    low: float
    value: float
    high: float
    words: str


@dataclass(frozen=True, slots=True)
class Change:
    """Row of the plot `changes`: a rate before and now, from 0 to 1. `words` is the change as text."""

    label: str
    before: float
    now: float
    words: str
    kind: str
    """CSS class of the row's marks, such as `regressed`."""


def spans(title: str, rows: Sequence[Span], most: float, axis: Callable[[float], str]) -> str:
    """Return an SVG plot with a mark at each value, and a line from its lower to its upper bound. `most` is the end of
    the axis, and `axis` formats its labels."""

    def drawn(row: Span, y: float) -> Iterator[str]:
        yield _line(_x(row.low, most), _x(row.high, most), y, "span")
        yield f'<circle class="mark" cx="{_x(row.value, most):.1f}" cy="{y:.1f}" r="4"/>'

    return _plot(
        title, [(each.label, each.words, drawn(each, _middle(at))) for at, each in enumerate(rows)], most, axis
    )


def bars(title: str, rows: Sequence[tuple[str, float, str]], axis: Callable[[float], str]) -> str:
    """Return an SVG bar chart. Each row is a label, a value, and the value as text; `axis` formats the labels of the
    axis."""
    most = max((value for _, value, _ in rows), default=0) or 1

    def drawn(value: float, y: float) -> Iterator[str]:
        width = _x(value, most) - _LABEL
        yield f'<rect class="mark" x="{_LABEL}" y="{y - 6:.1f}" width="{width:.1f}" height="12"/>'

    drawn_rows = [(label, words, drawn(value, _middle(at))) for at, (label, value, words) in enumerate(rows)]
    return _plot(title, drawn_rows, most, axis)


def changes(title: str, rows: Sequence[Change], axis: Callable[[float], str]) -> str:
    """Return an SVG plot of changed rates: a ring at the old rate, a mark at the new one, and a line between them.
    `axis` formats the labels of the axis."""

    def drawn(row: Change, y: float) -> Iterator[str]:
        yield _line(_x(row.before, 1), _x(row.now, 1), y, f"span {escape(row.kind)}")
        yield f'<circle class="ring" cx="{_x(row.before, 1):.1f}" cy="{y:.1f}" r="5"/>'
        yield f'<circle class="mark {escape(row.kind)}" cx="{_x(row.now, 1):.1f}" cy="{y:.1f}" r="4"/>'

    return _plot(title, [(each.label, each.words, drawn(each, _middle(at))) for at, each in enumerate(rows)], 1, axis)


def _plot(title: str, rows: Sequence[tuple[str, str, Iterable[str]]], most: float, axis: Callable[[float], str]) -> str:
    height = _ROW * (len(rows) + 1)
    parts = [f'<svg role="img" viewBox="0 0 {_LABEL + _PLOT + _WORDS} {height}"><title>{escape(title)}</title>']
    parts += _axis(most, axis, height)
    for at, (label, words, marks) in enumerate(rows):
        y = _middle(at)
        short = label if len(label) <= _MAX_LABEL else f"{label[: _MAX_LABEL - 1]}…"
        parts.append(
            f'<g><title>{escape(label)}: {escape(words)}</title><text x="0" y="{y + 4:.1f}">{escape(short)}</text>'
        )
        parts += marks
        parts.append(f'<text x="{_LABEL + _PLOT + 12}" y="{y + 4:.1f}">{escape(words)}</text></g>')
    return "\n".join([*parts, "</svg>"])


def _axis(most: float, axis: Callable[[float], str], height: float) -> Iterator[str]:
    for share in (0, 0.5, 1):
        x = _x(share * most, most)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - _ROW}"/>'
        words = escape(axis(share * most))
        yield f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{height - 7}">{words}</text>'


def _line(x1: float, x2: float, y: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _middle(row: int) -> float:
    return _ROW * (row + 0.5)


def _x(value: float, most: float) -> float:
    return _LABEL + _PLOT * min(1.0, value / most if most else 0.0)
