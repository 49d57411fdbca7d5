"""Benchmark session: runs a suite on agents, and writes a journal, the result and its reports to a folder."""

import importlib.metadata
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from babelgate.conformance.bench.attempt import Contender
from babelgate.conformance.bench.journal import BenchJournal, JournalError, read_journal
from babelgate.conformance.bench.price import Prices
from babelgate.conformance.bench.report import write_reports
from babelgate.conformance.bench.result import AgentAbout, Attempt, Header, Machine, Report, Settings, TaskAbout
from babelgate.conformance.bench.run import BenchProgress, Budget, run
from babelgate.conformance.bench.sandbox import Matcher
from babelgate.conformance.bench.suite import Suite
from babelgate.conformance.bench.summary import against, summarize
from babelgate.conformance.wire.exchange import Redactor

JOURNAL: Final = "journal.jsonl"
"""Name of the journal file in the folder of a benchmark."""
_INTERRUPTED: Final = "it was interrupted"


@dataclass(frozen=True, slots=True)
class BenchSession:
    folder: Path
    header: Header
    suite: Suite
    contenders: Sequence[Contender]
    prices: Prices
    budget: Budget
    baseline: Report | None = None
    baseline_file: str = ""
    secrets: Sequence[str] = ()
    """Credentials that were sent to the agents' servers. They are redacted if an agent repeats them."""


def begin(suite: Suite, agents: Sequence[AgentAbout], settings: Settings, *, suite_format: str = "babelgate") -> Header:
    """Return the header of a new journal, which describes the suite, the agents, the settings and this machine."""
    return Header(
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        suite=suite.name,
        source=suite.source,
        suite_format=suite_format,
        suite_hash=suite.hash,
        description=suite.description,
        notes=(*suite.notes, *(f"{loaded.task.name}: {note}" for loaded in suite.tasks for note in loaded.notes)),
        tasks=tuple(
            TaskAbout(
                name=loaded.task.name,
                hash=loaded.hash,
                category=loaded.task.category,
                difficulty=loaded.task.difficulty,
                weight=loaded.task.weight,
                depends_on=loaded.task.depends_on,
                description=loaded.task.description or (loaded.task.input or "")[:200],
            )
            for loaded in suite.tasks
        ),
        agents=tuple(agents),
        settings=settings,
        machine=_machine(),
    )


def _machine() -> Machine:
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        memory = None
    return Machine(
        system=platform.platform(),
        processor=platform.machine(),
        cpus=os.cpu_count() or 1,
        memory=memory,
        python=platform.python_version(),
        babelgate=importlib.metadata.version("babelgate"),
    )


def differences(header: Header, suite: Suite) -> list[str]:
    """Return a sentence for each task that differs between the header of a journal and a suite. A benchmark with such
    tasks cannot be resumed."""
    before, now = ({about.name: about.hash for about in header.tasks}, {a.task.name: a.hash for a in suite.tasks})
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return [f"the task {name} is not what it was" for name in changed]


async def conduct(session: BenchSession, tell: Callable[[BenchProgress], None]) -> Report:
    """Run the benchmark, or resume it from the journal in its folder, and return the report. `tell` is called with the
    progress.

    If it is cancelled, it still writes the reports on the finished attempts. Raises JournalError if the journal cannot
    be read.
    """
    path, redactor = session.folder / JOURNAL, Redactor(session.secrets)
    header, done, stopped = session.header, list[Attempt](), _INTERRUPTED
    async with Matcher() as matcher:
        if path.exists():
            header, done = read_journal(path)
        else:
            machine = header.machine.model_copy(update={"isolation": matcher.isolation})
            header = header.model_copy(update={"machine": machine})
        try:
            with _journal(path, header) as journal:

                def keep(record: Attempt) -> None:
                    record = _redact(record, redactor)
                    journal.add(record)
                    done.append(record)

                def tell_redacted(progress: BenchProgress) -> None:
                    latest = progress.latest
                    tell(progress if latest is None else replace(progress, latest=_redact(latest, redactor)))

                stopped = await run(
                    session.suite,
                    session.contenders,
                    header.settings,
                    session.prices,
                    matcher=matcher,
                    budget=session.budget,
                    keep=keep,
                    tell=tell_redacted,
                    done=tuple(done),
                )
        finally:
            report = summarize(header, done, stopped=stopped)
            if session.baseline is not None:
                report = against(report, session.baseline, session.baseline_file)
            write_reports(session.folder, report)
    return report


def _redact(record: Attempt, redactor: Redactor) -> Attempt:
    checks = tuple(each.model_copy(update={"why": redactor.text(each.why)}) for each in record.checks)
    fields = {"outputs": record.outputs, "artifacts": record.artifacts}
    texts = {name: tuple(map(redactor.text, each)) for name, each in fields.items()}
    return record.model_copy(update={**texts, "checks": checks, "why": redactor.text(record.why)})


def _journal(path: Path, header: Header):
    try:
        return BenchJournal.resume(path) if path.exists() else BenchJournal.create(path, header)
    except OSError as error:
        raise JournalError(f"{path}: it cannot be written: {error.strerror}") from None
