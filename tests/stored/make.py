"""Writes a database as an earlier commit writes it, and what it shows of it: `python -m tests.stored.make COMMIT`.

The commit's own code is taken out of git and run by this interpreter, so the packages are today's. Its gateway serves
the agents of `agents.py` and `graphs.py`, callers of every protocol use it (`drive.py`), and after it has stopped the
database and the files are kept in a folder of the commit's name. A second gateway of the same commit, on a copy, is
asked for every view (`view.py`), and what it answers is kept beside them.

That is done once a commit. Afterwards the views are what its users have seen, and `pytest --accept` is for what is
meant to be different from then on.
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
            # The agents import `babelgate`, and this environment would give them today's.
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
