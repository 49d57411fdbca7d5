"""Journal of a bench, whose records survive a crash."""

import json
from pathlib import Path

import pytest

from babelgate.conformance.bench.journal import BenchJournal, JournalError, read_journal, read_report, write_file
from babelgate.conformance.bench.result import FORMAT
from babelgate.conformance.bench.summary import summarize
from tests.conformance.bench.samples import attempt, header


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of a journal with two attempts."""
    path = tmp_path / "journal.jsonl"
    with BenchJournal.create(path, header(tasks=("a", "b"))) as journal:
        journal.add(attempt(task="a"))
        journal.add(attempt(task="b", outcome="failed"))
    return path


def test_added_attempts_are_read(path: Path) -> None:
    assert read_journal(path) == (header(tasks=("a", "b")), [attempt(task="a"), attempt(task="b", outcome="failed")])


def test_every_record_is_flushed_immediately(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with BenchJournal.create(path, header()) as journal:
        assert read_journal(path)[1] == []
        journal.add(attempt())
        assert read_journal(path)[1] == [attempt()]


def test_existing_journal_is_not_overwritten(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(FileExistsError), BenchJournal.create(path, header()):
        pass
    assert path.read_bytes() == before


@pytest.mark.parametrize("cut", [1, 20])
def test_truncated_last_line_is_ignored_and_overwritten(path: Path, cut: int) -> None:
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_journal(path)[1] == [attempt(task="a")]
    with BenchJournal.resume(path) as journal:
        journal.add(attempt(task="b", outcome="error"))
    assert read_journal(path)[1] == [attempt(task="a"), attempt(task="b", outcome="error")]
    assert path.read_bytes().count(b"\n") == 3


def test_later_attempt_replaces_an_earlier_one(path: Path) -> None:
    with BenchJournal.resume(path) as journal:
        journal.add(attempt(task="b"))
    assert read_journal(path)[1] == [attempt(task="a"), attempt(task="b")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", r"journal.jsonl:1: it is no journal of a bench: this is not JSON"),
        (b"{}\n", r"it is no journal of a bench: started_at: field required"),
        (b"nothing\n", r"journal.jsonl:1: .*not JSON"),
    ],
)
def test_error_for_an_invalid_journal_is_one_line(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(text)
    with pytest.raises(JournalError, match=words) as caught:
        read_journal(path)
    assert "\n" not in str(caught.value)


def test_broken_line_in_the_middle_is_named(path: Path) -> None:
    first, _, rest = path.read_bytes().split(b"\n", 2)
    path.write_bytes(b"\n".join([first, b"{", rest]))
    with pytest.raises(JournalError, match=r"journal.jsonl:2: "):
        read_journal(path)


def test_file_of_a_newer_version_is_refused(path: Path, tmp_path: Path) -> None:
    newer = header().model_copy(update={"format": FORMAT + 1})
    other = tmp_path / "newer.jsonl"
    with BenchJournal.create(other, newer):
        pass
    with pytest.raises(JournalError, match="a newer version has written it"):
        read_journal(other)
    result = tmp_path / "result.json"
    result.write_text(json.dumps({"format": FORMAT + 1, "what": "is not known"}))
    with pytest.raises(JournalError, match="a newer version has written it"):
        read_report(result)


def test_result_is_read_from_its_file_or_folder(tmp_path: Path) -> None:
    report = summarize(header(), [attempt()])
    write_file(tmp_path / "result.json", report.model_dump_json())
    assert read_report(tmp_path) == read_report(tmp_path / "result.json") == report


@pytest.mark.parametrize(("text", "words"), [("{", "it is not JSON"), ("[]", "it is no result"), ("{}", "header")])
def test_error_for_an_invalid_result_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(JournalError, match=words):
        read_report(tmp_path)


def test_file_is_written_atomically(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_file(file, "before")

    def cut_off():
        yield "half of"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(file, cut_off())
    assert file.read_text() == "before"
    write_file(file, iter(["af", "ter"]))
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("a.txt", "after")]
