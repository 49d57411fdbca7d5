"""Tests of `babelgate export` and `babelgate import`: threads are equal in both databases."""

import asyncio
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.canonical import FilePart, Message, RunInput, Submission, TextPart, Webhook
from babelgate.canonical.agent import DEFAULT_OWNER
from babelgate.canonical.assistant import Assistant
from babelgate.canonical.cron import Cron
from babelgate.canonical.hub import Receipt
from babelgate.canonical.state import TERMINAL, TaskState
from babelgate.gateway import demo
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.ids import new_id
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.sqlite import open_engine
from tests.gateway.command import PROGRAM, ROOT, babelgate, served
from tests.gateway.hubs import answer, ends, log, open_questions, reaches, submit
from tests.gateway.invariant import check_database
from tests.gateway.storage.transfer.lines import read_lines, short_log, write_lines, write_threads
from tests.opened import opened
from tests.stored.stage import HERE, Fixture, serve
from tests.stored.view import looks, requests_of, tasks_of

pytestmark = pytest.mark.timeout(180)

DEMOS: Final = ("echo", "stream", "ask", "approve", "files", "steps", "json", "tools", "fail")
AGENTS: Final[Mapping[str, Any]] = {
    **{name: {"python": f"babelgate.gateway.demo:{name}"} for name in DEMOS},
    "graph": {"graph": "tests.gateway.graphs:ask"},
}
FOLDS: Final = ("thread", "task", "run", "interrupt", "alias", "blob_use", "webhook", "item", "assistant")
TABLES: Final = (*FOLDS, "assistant_version", "cron", "checkpoint", "checkpoint_value", "checkpoint_write", "tally")
KEYS: Final = ("pk", "thread_pk")


def transfer(folder: Path, *arguments: str, database: str = "sqlite:///gateway.db") -> tuple[int, str]:
    """Run the command on the database in the folder, and return its exit code and its stderr."""
    ended = babelgate(folder, *arguments, "--database", database)
    assert ended.stdout == "" and "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stderr


def rows(folder: Path) -> dict[str, list[Any]]:
    """Return all rows of each table, with the database's keys of threads replaced by owner and thread id."""
    with closing(sqlite3.connect(folder / "gateway.db")) as connection:
        names = dict(connection.execute("SELECT pk, owner || ' ' || thread_id FROM thread").fetchall())
        connection.row_factory = sqlite3.Row
        found = {each: connection.execute(f"SELECT * FROM {each}").fetchall() for each in TABLES}
    return {
        table: sorted(
            (tuple(names[each] if name in KEYS else each for name, each in dict(row).items()) for row in some), key=repr
        )
        for table, some in found.items()
    }


def after_header(path: Path) -> bytes:
    return path.read_bytes().partition(b"\n")[2]


def count(folder: Path, table: str) -> int:
    with closing(sqlite3.connect(folder / "gateway.db")) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def check(folder: Path) -> None:
    """Check that all rows follow from the logs, and that all files exist."""
    engine = open_engine(f"sqlite:///{folder / 'gateway.db'}", writes=False, power=False)
    with engine.connect() as connection:
        check_database(connection, folder / "gateway.blobs")
    engine.dispose()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, Receipt]]:
    """Folder with a database of runs of all demo agents and a graph, some with open questions, and its export."""
    folder = tmp_path_factory.mktemp("source")
    receipts = asyncio.run(_converse(folder))
    assert transfer(folder, "export", "--out", "all.jsonl") == (
        0,
        f"all.jsonl: {len(AGENTS) + 1} threads, {count(folder, 'event')} records, 2 files, "
        "3 items, assistants and crons; left out: 0\n",
    )
    return folder, receipts


async def _converse(folder: Path) -> Mapping[str, Receipt]:
    receipts: dict[str, Receipt] = {}
    async with opened(folder, configured=AGENTS) as gateway:
        hub = gateway.hub
        for name in AGENTS:
            file = (FilePart(name="a.bin", inline=bytes(range(256)) * 3000),) if name == "files" else ()
            url = "http://127.0.0.1:9/hook"
            hook = Webhook(webhook_id="hook", dialect="a2a-1.0", url=url, config={"token": "t"})
            asks = Submission(
                agent=name,
                protocol="a2a",
                input=RunInput(messages=(Message(role="user", parts=(TextPart(text="one two"), *file)),)),
                alias=f"{name}'s",
                webhook=hook if name == "ask" else None,
            )
            receipts[name] = await hub.submit(DEFAULT_OWNER, asks)
            await reaches(hub, receipts[name], TaskState.INPUT_REQUIRED, *TERMINAL, owner=DEFAULT_OWNER)
        again = await submit(hub, "echo", "forget this", thread_id=receipts["echo"].thread_id, owner=DEFAULT_OWNER)
        await ends(hub, again, owner=DEFAULT_OWNER)
        await hub.remove_run(DEFAULT_OWNER, again.run_id)
        await ends(hub, await submit(hub, "echo", owner="bob", thread_metadata={"project": "apollo"}), owner="bob")
        await _keep_others(hub)
    return receipts


async def _keep_others(hub: GatewayHub) -> None:
    await hub.store.put(DEFAULT_OWNER, ("a", "b"), "key", {"kept": "é"})
    mine = Assistant(assistant_id=new_id(), agent="echo", name="Mine", created_at=0, updated_at=0)
    await hub.assistants.create(DEFAULT_OWNER, mine)
    yearly = Cron(cron_id=new_id(), agent="echo", assistant_id=new_id(), protocol="x", request={}, schedule="0 0 1 1 *")
    await hub.crons.create(DEFAULT_OWNER, yearly)


@pytest.fixture
def target(tmp_path: Path, source: tuple[Path, Any]) -> Path:
    """Folder with the export."""
    (tmp_path / "all.jsonl").write_bytes((source[0] / "all.jsonl").read_bytes())
    return tmp_path


def test_an_import_has_the_same_rows_as_the_source(source: tuple[Path, Any], target: Path) -> None:
    code, output = transfer(target, "import", "all.jsonl")
    assert code == 0 and f"added: {len(AGENTS) + 1} threads" in output and output.endswith("conflicts: 0\n"), output
    check(target)
    assert rows(target) == rows(source[0])
    code, output = transfer(target, "import", "all.jsonl")
    assert (code, output) == (
        0,
        f"all.jsonl: added: nothing; there already: {len(AGENTS) + 1} threads, 3 items, assistants and crons; "
        "conflicts: 0\n",
    )
    assert rows(target) == rows(source[0])
    assert transfer(target, "export", "--out", "back.jsonl")[0] == 0
    assert after_header(target / "back.jsonl") == after_header(target / "all.jsonl")  # including all records
    assert stat.S_IMODE((target / "back.jsonl").stat().st_mode) == 0o600


async def test_imported_questions_can_be_answered(source: tuple[Path, Mapping[str, Receipt]], target: Path) -> None:
    receipts = source[1]
    assert transfer(target, "import", "all.jsonl")[0] == 0
    async with opened(target, configured=AGENTS) as gateway:
        hub = gateway.hub
        for name, values, expected in (
            ("ask", ("Ada",), "Hello, Ada."),
            ("approve", ({"approved": True}, {"approved": False}), "send: not approved"),
            ("graph", ("Ada",), "You said 'Ada'."),
        ):
            task_id = receipts[name].task_id
            open_ones = await open_questions(hub, receipts[name], owner=DEFAULT_OWNER)
            answers = {each.interrupt_id: value for each, value in zip(open_ones, values, strict=True)}
            await answer(hub, task_id, values=answers, owner=DEFAULT_OWNER)
            task = await ends(hub, receipts[name], owner=DEFAULT_OWNER)
            records = await log(hub, receipts[name], owner=DEFAULT_OWNER)
            assert task.state is TaskState.COMPLETED and expected in repr(records)
    assert transfer(target, "import", "all.jsonl")[0] == 0  # no conflict: each longer log begins with that of the file
    check(target)


@pytest.mark.slow
def test_every_protocol_shows_the_same_after_an_import(tmp_path: Path) -> None:
    fixture = Fixture(HERE / "9962417")
    fixture.unpack(tmp_path / "source")
    (tmp_path / "target").mkdir()
    before = fixture.read()
    requests = list(requests_of(tasks_of(tmp_path / "source" / "gateway.db"), langgraph=True, aief=True))
    code, output = transfer(tmp_path / "source", "export", "--out", "all.jsonl")
    assert code == 1 and output.count("\n") == 1 and "start a gateway of this release on it once" in output
    asyncio.run(_migrate(tmp_path / "source" / "gateway.db"))
    assert transfer(tmp_path / "source", "export", "--out", "../all.jsonl")[0] == 0
    assert transfer(tmp_path / "target", "import", "../all.jsonl")[0] == 0
    with serve(fixture, tmp_path / "target") as url:
        for request, response in looks(url, requests):
            assert response == before[request.protocol][str(request)], request


async def _migrate(database: Path) -> None:
    journal = Journal(f"sqlite:///{database}")
    await journal.open()
    await journal.close()


@pytest.mark.parametrize(
    ("chosen", "threads"),
    [
        (("--owner", "bob"), 1),
        (("--agent", "echo"), 2),
        (("--agent", "echo", "--owner", DEFAULT_OWNER), 1),
        (("--agent", "echo", "--agent", "graph"), 3),
        (("--metadata", "project=apollo"), 1),
        (("--metadata", 'project="gemini"'), 0),
        (("--owner", DEFAULT_OWNER), len(AGENTS)),
    ],
)
def test_options_select_the_exported_threads(
    source: tuple[Path, Any], tmp_path: Path, chosen: tuple[str, ...], threads: int
) -> None:
    assert transfer(source[0], "export", "--out", str(tmp_path / "some.jsonl"), *chosen)[0] == 0
    lines = read_lines(tmp_path / "some.jsonl")
    assert sum(line["kind"] == "thread" for line in lines) == threads
    assert any(line["kind"] == "owner" for line in lines) == (chosen == ("--owner", DEFAULT_OWNER))


def test_an_export_names_the_threads_that_it_leaves_out(
    source: tuple[Path, Mapping[str, Receipt]], tmp_path: Path
) -> None:
    unknown = new_id()
    asked_for = [part for each in (source[1]["echo"].thread_id, unknown) for part in ("--thread", each)]
    code, output = transfer(source[0], "export", "--out", str(tmp_path / "some.jsonl"), *asked_for)
    assert code == 1 and f"left out: thread {unknown}: not found" in output and "1 threads" in output
    shutil.copy(source[0] / "gateway.db", tmp_path)  # without its files
    code, output = transfer(tmp_path, "export", "--out", "some.jsonl")
    assert (
        code == 1
        and output.count("a file of it is missing in the file store") == 1
        and f"{len(AGENTS)} threads" in output
    )


def test_export_and_import_work_through_pipes(source: tuple[Path, Mapping[str, Receipt]], tmp_path: Path) -> None:
    thread_id = source[1]["files"].thread_id
    database = "sqlite:///gateway.db"
    exporting = babelgate(source[0], "export", "--thread", thread_id, "--out", "-", "--database", database)
    importing = babelgate(tmp_path, "import", "-", "--database", database, stdin=exporting.stdout)
    assert (exporting.returncode, importing.returncode) == (0, 0), exporting.stderr + importing.stderr
    assert count(tmp_path, "thread") == 1 and count(tmp_path, "blob_use") == 2
    check(tmp_path)


def test_a_thread_with_other_contents_is_a_conflict(target: Path) -> None:
    assert transfer(target, "import", "all.jsonl")[0] == 0
    before = rows(target)
    lines = read_lines(target / "all.jsonl")
    changed = next(line for line in lines if line["kind"] == "record" and line["event"]["kind"] == "part_added")
    changed["event"]["part"]["text"] = "something else"
    next(line for line in lines if line["kind"] == "item")["value"] = {"kept": "otherwise"}
    write_lines(target / "other.jsonl", lines)
    code, output = transfer(target, "import", "other.jsonl")
    first, second, last = output.splitlines()
    thread = next(line["thread_id"] for line in lines if line["kind"] == "thread")
    expected = f"conflict: thread {thread} of default: the thread exists already, and its log differs at event "
    assert code == 1 and expected in first
    assert "conflict: item a.b.key exists already with other contents (owner default)" in second
    assert last.endswith("conflicts: 2")
    assert rows(target) == before


def test_a_running_gateway_allows_exports_but_no_imports(target: Path) -> None:
    with served(target, "--database", "sqlite:///gateway.db") as running:
        assert transfer(target, "export", "--out", "none.jsonl") == (0, "none.jsonl: nothing; left out: 0\n")
        code, output = transfer(target, "import", "all.jsonl")
        assert code == 1 and output.count("\n") == 1 and "another gateway uses this database" in output
        running.stop()


async def test_active_runs_are_exported_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    async with opened(tmp_path, {"slow": demo.slow, "echo": demo.echo}) as gateway:
        slow = await submit(gateway.hub, "slow", "100000", owner=DEFAULT_OWNER)
        await reaches(gateway.hub, slow, TaskState.WORKING, owner=DEFAULT_OWNER)
        later = await submit(gateway.hub, "echo", start_in=3_600_000_000, owner=DEFAULT_OWNER)
        code, output = await asyncio.to_thread(transfer, tmp_path, "export", "--out", "idle.jsonl")
        assert code == 1 and output.count("left out: thread") == 2 and slow.thread_id in output
        code, output = await asyncio.to_thread(transfer, tmp_path, "export", "--active", "--out", "target/all.jsonl")
        assert code == 0 and output.endswith("left out: 0\n")
    code, output = transfer(tmp_path / "target", "import", "all.jsonl")
    assert code == 0 and "2 runs were active or waiting: the next gateway recovers them as after a crash" in output
    async with opened(tmp_path / "target", {"slow": demo.slow, "echo": demo.echo}) as gateway:
        task = await ends(gateway.hub, slow, owner=DEFAULT_OWNER)
        assert task.state is TaskState.FAILED and task.fault is not None
        assert (await gateway.hub.reads.task(DEFAULT_OWNER, later.task_id)).state is TaskState.SUBMITTED


@pytest.mark.slow
def test_a_killed_import_keeps_whole_threads_and_can_be_repeated(tmp_path: Path) -> None:
    threads = 300
    write_threads(tmp_path / "many.jsonl", ((new_id(), short_log(new_id())) for _ in range(threads)))
    asyncio.run(_migrate(tmp_path / "gateway.db"))
    arguments = ("import", "many.jsonl", "--database", "sqlite:///gateway.db")
    with subprocess.Popen([*PROGRAM, *arguments], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}) as importing:
        while count(tmp_path, "thread") < 5:
            assert importing.poll() is None
        importing.kill()
    imported = count(tmp_path, "thread")
    assert 5 <= imported < threads and count(tmp_path, "event") == 2 * imported
    check(tmp_path)
    code, output = transfer(tmp_path, "import", "many.jsonl")
    assert (
        code == 0
        and f"added: {threads - imported} threads" in output
        and f"there already: {imported} threads" in output
    )
    assert count(tmp_path, "event") == 2 * threads


def test_an_export_of_the_first_format_stays_readable(tmp_path: Path) -> None:
    old_export = Path(__file__).parent / "export-1.jsonl"
    assert transfer(tmp_path, "import", str(old_export))[0] == 0
    assert transfer(tmp_path, "export", "--out", "again.jsonl")[0] == 0
    assert after_header(tmp_path / "again.jsonl") == after_header(old_export)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("export", "--out", "x"), "there is no such database"),
        (("export", "--out", "no/such/folder"), "there is no such database"),
        (("export", "--out", "x", "--metadata", "word"), "give KEY=VALUE"),
        (("import", "missing.jsonl"), "it cannot be read"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(tmp_path: Path, arguments: tuple[str, ...], expected: str) -> None:
    code, errors = transfer(tmp_path, *arguments)
    assert code > 0 and errors.count("\n") == 1 and expected in errors
    assert list(tmp_path.iterdir()) == []


def test_a_failed_export_leaves_no_file(source: tuple[Path, Any], tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").mkdir()
    code, output = transfer(source[0], "export", "--out", str(tmp_path / "out.jsonl"))
    assert code == 2 and "this is a folder" in output
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize("postgres", [True], indirect=True)
async def test_threads_are_imported_into_postgresql_and_exported_again(
    source: tuple[Path, Mapping[str, Receipt]], target: Path, postgres: str
) -> None:
    for expected in (f"added: {len(AGENTS) + 1} threads", "added: nothing"):
        importing = await asyncio.to_thread(babelgate, target, "import", "all.jsonl", "--database", postgres)
        assert importing.returncode == 0 and expected in importing.stderr, importing.stderr
    back = await asyncio.to_thread(babelgate, target, "export", "--out", "back.jsonl", "--database", postgres)
    assert back.returncode == 0, back.stderr
    assert (await asyncio.to_thread(transfer, target, "import", "back.jsonl"))[0] == 0
    assert rows(target) == rows(source[0])
    async with opened(target, configured=AGENTS, database=postgres, blobs=target / "babelgate.blobs") as gateway:
        question = source[1]["graph"]
        await answer(gateway.hub, question.task_id, "Ada", owner=DEFAULT_OWNER)
        assert (await ends(gateway.hub, question, owner=DEFAULT_OWNER)).state is TaskState.COMPLETED
