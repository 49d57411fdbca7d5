"""Third-party modules of the console: the copies are what npm publishes."""

import json
import os
from pathlib import Path

from tests.interop.peers import PeerMissing
from tests.skip import missing
from tests.vendor import LICENSES, MODULES, RECORD, VENDOR, convert, describe, download


def test_copies_equal_the_published_modules(tmp_path: Path) -> None:
    try:
        published, licenses = download(tmp_path)
    except PeerMissing as reason:
        if os.environ.get("BABELGATE_PEERS") == "required":
            raise
        missing(str(reason))
    assert {name: convert(content) for name, content in published.items()} == {
        path.name: path.read_bytes() for path in VENDOR.glob("*.js")
    }
    assert json.loads(RECORD.read_text()) == [describe(module, published[module.name]) for module in MODULES]
    assert LICENSES.read_text() == licenses
