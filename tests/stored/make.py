"""Store a database that an earlier commit has written, and its views: `python -m tests.stored.make COMMIT`.

The code of the commit is extracted from git and run by this interpreter, with the packages of today. Its gateway serves
the agents of `agents.py` and `graphs.py`, and callers of every protocol use it (`drive.py`). After it has stopped, the
database and the files are stored in a folder with the name of the commit. A second gateway of the same commit runs on a
copy and answers the requests for all views (`view.py`). The answers are stored in the same folder.

This is done once per commit. The views are then what users of the commit saw. `pytest --accept` replaces them after an
intended change.
"""

import gzip
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.stored.drive import drive
from tests.stored.stage import HERE, Fixture, serve

ROOT = HERE.parents[1]


def main(commit: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        source, work = Path(name) / "source", Path(name) / "work"
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(source, filter="data")
        if not (source / "babelgate").is_dir():
            # The agents import `babelgate`, and would get the package of this environment.
            sys.exit(f"{commit}: expected a commit with the package babelgate; run the make.py of an older commit")
        langgraph, aief = ((source / "adapters" / each).exists() for each in ("langchain", "aief"))
        graphs = (source / "gateway" / "graph.py").exists()
        fixture = Fixture(HERE / commit, source, graphs=graphs)
        work.mkdir()
        with serve(fixture, work) as url:
            drive(url, graphs=graphs, langgraph=langgraph, aief=aief)
        shutil.rmtree(fixture.folder, ignore_errors=True)
        fixture.folder.mkdir()
        fixture.database.write_bytes(gzip.compress((work / "gateway.db").read_bytes(), mtime=0))
        if (work / "gateway.blobs").exists():
            shutil.copytree(work / "gateway.blobs", fixture.blobs)
        fixture.write(fixture.look(Path(name) / "again", langgraph=langgraph, aief=aief))


if __name__ == "__main__":
    main(*sys.argv[1:])
