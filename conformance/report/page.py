"""HTML frame of a self-contained report. The page loads nothing, runs no script and sends no referrer."""

from collections.abc import Iterable
from html import escape
from importlib.resources import files


def page(title: str, body: Iterable[str], *, more_style: str = "") -> str:
    """Return a self-contained HTML page. `body` yields HTML whose texts are escaped already, and `more_style` is
    CSS."""
    style = (files("babelgate.conformance") / "report" / "page.css").read_text(encoding="utf-8") + more_style
    lines = "\n".join(body)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{lines}
</body>
</html>
"""
