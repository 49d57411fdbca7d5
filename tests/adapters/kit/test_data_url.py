"""Media types and bytes of `data:` URLs."""

from typing import Any

import pytest

from babelgate.adapters.kit.data_url import decode_data_url, inline_data_url
from babelgate.canonical import FilePart, TextPart
from babelgate.canonical.event import ArtifactAdded, PartAdded, RunEnded


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("data:image/png;base64,aGk=", ("image/png", b"hi")),
        ("DATA:Image/PNG;charset=x; BASE64,aGk%3D", ("image/png", b"hi")),
        ("data:,a%20b", ("text/plain", b"a b")),
        ("data:text/csv,a,b", ("text/csv", b"a,b")),
        ("data:image/png;base64,a", None),
        ("data:image/png", None),
        ("https://host/data:,x", None),
    ],
)
def test_a_data_url_is_decoded(url: str, expected: tuple[str, bytes] | None) -> None:
    assert decode_data_url(url) == expected


@pytest.mark.parametrize("kind", [PartAdded, ArtifactAdded])
@pytest.mark.parametrize(
    ("url", "inline", "media_type"),
    [
        ("data:text/plain;base64,aGVsbG8=", b"hello", "text/plain"),
        ("DATA:image/svg+xml,%3Csvg/%3E", b"<svg/>", "image/svg+xml"),
        ("data:text/plain;base64,!!", None, None),
        ("https://example.com/a", None, None),
    ],
)
def test_a_file_with_a_data_url_has_its_bytes(
    kind: Any, url: str, inline: bytes | None, media_type: str | None
) -> None:
    event: Any = inline_data_url(kind(part=FilePart(name="a", url=url)))
    part = event.part
    assert (part.name, part.inline, part.media_type) == ("a", inline, media_type)
    assert part.url == (url if inline is None else None)


def test_other_events_are_unchanged() -> None:
    for event in (PartAdded(part=TextPart(text="data:,a")), RunEnded()):
        assert inline_data_url(event) is event
