"""Gateway on a copy of a stored database, and its views."""

import gzip
import json
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gateway.command import ROOT, served
from tests.stored.view import looks, requests_of, tasks_of

HERE = Path(__file__).parent
AGENTS = ("everything", "asks", "fails", "refuses", "waits", "remembers")


@dataclass(frozen=True)
class Fixture:
    """Folder with the database, files and views of one commit."""

    folder: Path
    source: Path = ROOT
    """Folder of the code that serves the database."""
    graphs: bool = True

    @property
    def database(self) -> Path:
        return self.folder / "gateway.db.gz"

    @property
    def blobs(self) -> Path:
        return self.folder / "gateway.blobs"

    @property
    def views(self) -> Path:
        """Folder with one file of views per protocol."""
        return self.folder / "views"

    def unpack(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "gateway.db").write_bytes(gzip.decompress(self.database.read_bytes()))
        if self.blobs.exists():
            shutil.copytree(self.blobs, folder / "gateway.blobs")

    def look(self, folder: Path, *, langgraph: bool, aief: bool) -> dict[str, dict[str, Any]]:
        """Return all views of a gateway on a copy of the database in `folder`: answers by request, by protocol.
        `langgraph` and `aief` are True if the release of the database had these protocols."""
        self.unpack(folder)
        requests = list(requests_of(tasks_of(folder / "gateway.db"), langgraph=langgraph, aief=aief))
        views: dict[str, dict[str, Any]] = {}
        with serve(self, folder) as url:
            for request, answer in looks(url, requests):
                views.setdefault(request.protocol, {})[str(request)] = answer
        return views

    def write(self, views: dict[str, dict[str, Any]]) -> None:
        """Write the views, one line each."""
        self.views.mkdir(exist_ok=True)
        for protocol, answers in views.items():
            lines = [f"{json.dumps(each)}: {json.dumps(answers[each], ensure_ascii=False)}" for each in answers]
            text = "{\n" + ",\n".join(lines) + "\n}\n"
            (self.views / f"{protocol}.json").write_text(text, encoding="utf-8")

    def read(self) -> dict[str, dict[str, Any]]:
        return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(self.views.glob("*.json"))}


@contextmanager
def serve(fixture: Fixture, folder: Path) -> Generator[str]:
    """Run a gateway on the database in a folder, and yield its URL. Assert in the end that it logged no error."""
    agents = {name: {"python": f"agents:{name}"} for name in AGENTS}
    if fixture.graphs:
        agents["graph"] = {"python": "graphs:graph"}
    settings = {"database": "sqlite:///gateway.db", "network": {"allow": ["127.0.0.0/8"]}, "agents": agents}
    (folder / "babelgate.yaml").write_text(json.dumps(settings), encoding="utf-8")
    with served(folder, PYTHONPATH=f"{fixture.source}:{HERE}") as running:
        yield running.url
        log = running.stop()
    assert " ERROR " not in log, log
