"""Log of `babelgate serve`: it contains texts from outside, but none of them looks like a separate record."""

import io
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.canonical.printable import one_line
from babelgate.gateway.cli.log import DELAY, HIDDEN, BufferedHandler, HidingFormatter, LineFormatter, hide_in_log
from babelgate.gateway.telemetry.json_lines import JsonFormatter
from tests.gateway.command import BOUND, PROGRAM, ROOT, served

FORGED = "2026-01-01 00:00:00,000 INFO babelgate.request forged"
BREAKS = ("\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029")
NASTY = f"said{''.join(end + FORGED for end in BREAKS)}\x1b[2K\x1b[1A\x9b2K\x00\u202egnirts"

AGENTS = f"""
import asyncio, logging, threading, warnings

NASTY = {NASTY!r}


async def fails(text: str):
    raise ValueError(NASTY)


async def logs(text: str):
    logging.getLogger("mine").warning("%s", text)
    yield "logged"


async def warns(text: str):
    warnings.warn(text, stacklevel=1)
    yield "warned"


async def threads(text: str):
    def work():
        raise ValueError(text)
    thread = threading.Thread(target=work, name=text)
    thread.start()
    await asyncio.to_thread(thread.join)
    yield "ended"


async def forgets(text: str):
    class Broken:
        def __del__(self):
            raise ValueError(text)
    Broken()
    task = asyncio.ensure_future(fails(text))
    await asyncio.wait([task])
    del task
    yield "forgotten"
"""
NAMES = ("fails", "logs", "warns", "threads", "forgets")

RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) (\S+) \S.*")


@pytest.fixture
def refusing() -> Iterator[str]:
    """URL of a webhook receiver that refuses every delivery."""

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(500)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def are_records(log: str) -> None:
    """Assert that every line is a record or is indented below one, for all line separators of Unicode."""
    assert log
    for line in log.splitlines():
        assert line.startswith("  ") or RECORD.fullmatch(line), repr(line)
        assert line.isprintable(), repr(line)
        assert not line.startswith(FORGED)


def sent(text: str, **configuration: Any) -> dict[str, Any]:
    message = {"role": "user", "kind": "message", "messageId": "m", "parts": [{"kind": "text", "text": text}]}
    params = {"message": message, "configuration": {"blocking": True, **configuration}}
    return {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}


def test_no_text_from_outside_looks_like_a_record(tmp_path: Path, refusing: str) -> None:
    (tmp_path / "nasty.py").write_text(AGENTS, encoding="utf-8")
    network = {"BABELGATE_NETWORK__ALLOW": "127.0.0.0/8"}
    targets = [f"nasty:{name}" for name in NAMES]
    with served(tmp_path, *targets, "echo=babelgate.gateway.demo:echo", "--log-level", "debug", **network) as running:
        for name in NAMES:
            answer = httpx.post(f"{running.url}/a2a/{name}", json=sent(NASTY), timeout=BOUND).json()
            assert answer["result"]["status"]["state"] == ("failed" if name == "fails" else "completed"), answer
        hook = {"url": refusing, "id": f"hook\n{FORGED}\u2028{FORGED}\x1b[2K"}
        hooked = sent("Hello", pushNotificationConfig=hook)
        assert "result" in httpx.post(f"{running.url}/a2a/echo", json=hooked, timeout=BOUND).json()
        running.logged("webhook=hook")
        httpx.get(f"{running.url}/a2a/%0A{FORGED.replace(' ', '%20')}\u2028", headers=[(b"user-agent", b"\x85 \x9b")])
        log = running.stop()
    are_records(log)
    for expected in (
        "  ValueError: said",
        "WARNING mine said",
        "UserWarning: said",
        "Exception in thread said",
        "__del__",
    ):
        assert expected in log, expected
    assert r"\u202egnirts" in log


def test_texts_of_files_and_servers_stay_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(f"raise RuntimeError({NASTY[::-1]!r})", encoding="utf-8")
    done = subprocess.run(
        [*PROGRAM, "serve", "broken:agent", "--port", "0"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=BOUND,
        check=False,
    )
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("babelgate: ") and line.isprintable()


def test_the_table_shows_a_broken_agents_reason_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(f"raise RuntimeError({NASTY[::-1]!r})", encoding="utf-8")
    agents = {"good": {"python": "babelgate.gateway.demo:echo"}, "bad": {"python": "broken:agent"}}
    (tmp_path / "babelgate.yaml").write_text(json.dumps({"agents": agents}), encoding="utf-8")
    with served(tmp_path) as running:
        assert all(line.isprintable() for line in running.table.split("\n"))
        are_records(running.stop())


def test_a_traceback_is_indented_below_its_record() -> None:
    try:
        raise ValueError(f"a\n{FORGED}")
    except ValueError:
        record = logging.LogRecord("name", logging.ERROR, "", 1, "it %s\nhere", ("failed",), sys.exc_info())
    first, *others = LineFormatter("%(levelname)s %(message)s").format(record).split("\n")
    assert first == r"ERROR it failed\nhere"
    assert others[0] == "  Traceback (most recent call last):"
    assert others[-2:] == ["  ValueError: a", f"  {FORGED}"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain, naïve, 漢字 🎈", "plain, naïve, 漢字 🎈"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\u2028b\x85c\udc80", r"a\u2028b\x85c\udc80"),
        (r"C:\new", r"C:\new"),
    ],
)
def test_only_control_characters_are_escaped(text: str, line: str) -> None:
    assert one_line(text) == line


def test_a_line_has_a_bounded_length() -> None:
    record = logging.LogRecord("name", logging.ERROR, "", 1, "said %s", ("x" * 1_000_000,), None)
    line = LineFormatter("%(levelname)s %(message)s").format(record)
    assert line.endswith("xxx...")
    assert len(line) == 16 * 1024


class Stream(io.StringIO):
    """Stream that counts its writes, and sets an event at each."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.written = threading.Event()

    def write(self, text: str) -> int:
        self.writes += 1
        self.written.set()
        return super().write(text)


def logging_to(stream: Stream) -> tuple[logging.Logger, BufferedHandler]:
    logger, handler = logging.Logger("mine", logging.INFO), BufferedHandler(stream)
    logger.addHandler(handler)
    return logger, handler


def test_lines_are_written_in_batches_after_a_short_delay() -> None:
    stream = Stream()
    logger, handler = logging_to(stream)
    for number in range(100):
        logger.info("%d", number)
    assert stream.written.wait(100 * DELAY)
    handler.flush()
    assert stream.getvalue().split() == [str(number) for number in range(100)]
    assert stream.writes < 10
    stream.written.clear()
    logger.info("later")
    assert stream.written.wait(100 * DELAY)
    handler.close()


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR])
def test_a_warning_flushes_the_log_at_once(level: int) -> None:
    stream = Stream()
    logger, handler = logging_to(stream)
    logger.info("before")
    logger.log(level, "now")
    assert stream.getvalue() == "before\nnow\n"
    handler.close()


def test_closing_the_log_writes_the_buffered_lines() -> None:
    stream = Stream()
    logger, handler = logging_to(stream)
    logger.info("last")
    handler.flush()
    handler.close()
    assert stream.getvalue() == "last\n"


def test_a_stopping_gateway_writes_its_last_lines(tmp_path: Path) -> None:
    with served(tmp_path) as running:
        httpx.get(f"{running.url}/healthz").raise_for_status()
        log = running.stop()
    assert "GET /healthz 200" in log


@pytest.mark.parametrize("inner", [LineFormatter(), JsonFormatter(None, is_traced=False)])
def test_secrets_of_files_are_hidden_in_all_forms(inner: logging.Formatter) -> None:
    secret = 'quo"ted\n\u2028gr\u00fc\u00df'
    record = logging.LogRecord("babelgate", logging.INFO, "x.py", 1, "url=%s abc", (f"https://{secret}/",), None)
    try:
        hide_in_log([secret, "abc", "quo"])
        line = HidingFormatter(inner).format(record)
        assert f"url=https://{HIDDEN}/ abc" in line  # three characters are too few
        hide_in_log([])
        assert HIDDEN not in HidingFormatter(inner).format(record)
    finally:
        hide_in_log([])


def test_a_gateway_hides_secrets_of_files_in_its_log(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret-0123456789\n")
    url = "http://127.0.0.1:9/${file:SECRET}".replace("SECRET", str(tmp_path / "secret"))
    (tmp_path / "babelgate.yaml").write_text(json.dumps({"agents": {"a": {"url": url}}}))
    with served(tmp_path) as gateway:
        line = gateway.logged("broken agent a")
        assert f"http://127.0.0.1:9/{HIDDEN}: " in line
        assert "secret-" not in gateway.stop()
