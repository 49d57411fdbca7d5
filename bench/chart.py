"""Bar chart of rows: SVG without a script or its own font, readable on a light and a dark background."""

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from bench.comparison import GATEWAY, ComparisonRow

WIDTH: Final = 760
BARS: Final = 180
"""Horizontal position at which the bars begin, in pixels. The names of the servers are left of it."""
FIGURES: Final = 150
"""Width that is left free at the right of the longest bar for its figures, in pixels."""
BAR: Final = 18
LINE: Final = 24
HEADING: Final = 26
TOP: Final = 58

_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 16px; font-weight: 600; }
.work { font-weight: 600; }
.note { fill: #59636e; }
.name { text-anchor: end; }
.gateway { fill: #0969da; }
.reference { fill: #8c959f; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .note { fill: #9198a1; }
  .gateway { fill: #4493f8; }
  .reference { fill: #6e7681; }
}
"""


def draw(title: str, note: str, rows: Sequence[ComparisonRow]) -> str:
    """Return an SVG drawing with jobs per second as horizontal bars, grouped by kind of job. All bars have one scale.
    `note` is a line of text below the title."""
    longest = max((row.figures.rate for row in rows), default=0) or 1
    groups = len({row.work for row in rows})
    height = TOP + groups * (HEADING + 8) + len(rows) * LINE
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">',
            f"<style>{_STYLE}</style>",
            f'<text class="title" x="12" y="24">{escape(title)}</text>',
            f'<text class="note" x="12" y="44">{escape(note)}</text>',
            *_bars(rows, longest),
            "</svg>\n",
        ]
    )


def _bars(rows: Sequence[ComparisonRow], longest: float) -> Iterator[str]:
    top, work = TOP, None
    for row in rows:
        if row.work != work:
            top += HEADING if work is None else HEADING + 8
            yield f'<text class="work" x="12" y="{top - 8}">{escape(row.work)}</text>'
            work = row.work
        width = row.figures.rate / longest * (WIDTH - BARS - FIGURES)
        middle = top + BAR - 5
        colour = "gateway" if row.server == GATEWAY else "reference"
        yield f'<text class="name" x="{BARS - 8}" y="{middle}">{escape(row.server)}</text>'
        yield f'<rect class="{colour}" x="{BARS}" y="{top}" width="{width:.1f}" height="{BAR}" rx="2"/>'
        figures = f"{_short(row.figures.rate)}/s, {_short(row.figures.cpu)} ms CPU"
        yield f'<text x="{BARS + width + 8:.1f}" y="{middle}">{figures}</text>'
        top += LINE


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
