"""Media types and bytes of `data:` URLs."""

import pytest

from babelgate.adapters._data_url import decode_data_url


@pytest.mark.parametrize(
    ("url", "found"),
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
def test_a_data_url_is_its_bytes(url: str, found: tuple[str, bytes] | None) -> None:
    assert decode_data_url(url) == found
