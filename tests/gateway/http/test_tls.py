"""Tests of TLS on the gateway's ports: its limits, live renewal, workers and listeners, with real certificates."""

import logging
import re
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from babelgate.gateway.http.tls import LiveContext, ServerTls
from babelgate.gateway.observe import GatewayObserver
from babelgate.gateway.settings.certificates import CertificateError
from babelgate.gateway.settings.tls import TlsSettings
from tests.authority import Authority, Pair
from tests.gateway.command import BOUND, Served, babelgate, served
from tests.gateway.load import run_body
from tests.postgres import empty, url_of

AGENTS = """
import asyncio, pathlib

async def patient(text: str):
    yield "begun"
    while not pathlib.Path(text).exists():
        await asyncio.sleep(0.01)
    yield " ended"
"""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "waiting.py").write_text(AGENTS)
    return Authority(tmp_path)


def write(folder: Path, tls: object, **settings: Any) -> None:
    agents = {"patient": {"python": "waiting:patient"}}
    text = yaml.safe_dump({"agents": agents, "tls": tls, **settings})
    (folder / "babelgate.yaml").write_text(text)


def texts(pair: Pair, **more: object) -> dict[str, str]:
    return {name: str(value) for name, value in {**pair._asdict(), **more}.items()}


def serial_of(url: str) -> int:
    """Return the serial number of the certificate that a new connection gets."""
    address = httpx.URL(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((address.host, address.port or 443), BOUND) as plain,
        context.wrap_socket(plain) as connection,
    ):
        content = connection.getpeercert(binary_form=True)
        assert content is not None
        return Pair.serial_in(content)


def reload(gateway: Served) -> str:
    gateway.process.send_signal(signal.SIGHUP)
    return gateway.logged("babelgate.reload configuration")


def swap(folder: Path, authority: Authority, name: str) -> Pair:
    """Replace a certificate and its key by rename, the key first."""
    (folder / "next").mkdir(exist_ok=True)
    new = authority.issue(name, "127.0.0.1", folder=folder / "next")
    pair = Pair(folder / new.cert.name, folder / new.key.name)
    new.key.replace(pair.key)
    new.cert.replace(pair.cert)
    return pair


@pytest.mark.parametrize("watch", [False, True])
def test_a_renewed_certificate_is_used_while_streams_continue(
    tmp_path: Path, authority: Authority, watch: bool
) -> None:
    first = authority.issue("server", "127.0.0.1")
    before = first.serial
    write(tmp_path, texts(first), watch=watch)
    trust = ssl.create_default_context(cafile=authority.path)
    with served(tmp_path) as gateway, httpx.Client(verify=trust, timeout=BOUND) as http:
        assert gateway.url.startswith("https://127.0.0.1:")
        body = run_body("patient", str(tmp_path / "go"), "stream")
        with http.stream("POST", f"{gateway.url}/acp/runs", json=body) as response:
            lines = response.iter_lines()
            assert any("begun" in line for line in lines)
            assert serial_of(gateway.url) == before
            second = swap(tmp_path, authority, "server")
            if not watch:
                gateway.process.send_signal(signal.SIGHUP)
            gateway.logged("certificate in use")
            assert "tls.cert: applied" in gateway.logged("tls.cert")
            assert serial_of(gateway.url) == second.serial != before
            authority.issue("other", "127.0.0.1").key.replace(second.key)
            if not watch:
                gateway.process.send_signal(signal.SIGHUP)
            assert "tls.key: " in gateway.logged("configuration not reloaded")
            assert "the key does not belong to the certificate" in gateway.log
            assert serial_of(gateway.url) == second.serial
            (tmp_path / "go").touch()
            assert any("run.completed" in line for line in lines)


def test_what_is_not_tls_gets_a_closed_connection(tmp_path: Path, authority: Authority) -> None:
    write(tmp_path, texts(authority.issue("server", "127.0.0.1")))
    with served(tmp_path) as gateway:
        address = httpx.URL(gateway.url)
        with socket.create_connection((address.host, address.port or 0), BOUND) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            received = b""
            while piece := plain.recv(4096):
                received += piece
        assert b"HTTP" not in received
        old = ssl.create_default_context(cafile=authority.path)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        weak = ssl.create_default_context(cafile=authority.path)
        weak.maximum_version = ssl.TLSVersion.TLSv1_2
        weak.set_ciphers("AES128-SHA")
        assert httpx.get(f"{gateway.url}/healthz", verify=old).status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{gateway.url}/healthz", verify=weak)
        # The gateway refuses the head and closes the connection, which TLS cannot do in one direction alone.
        response = httpx.get(f"{gateway.url}/healthz", headers={"X-Long": "x" * 100_000}, verify=old, timeout=BOUND)
        assert response.status_code == 431
        assert "Traceback" not in gateway.stop()


def test_only_a_restart_turns_tls_on_or_off(tmp_path: Path, authority: Authority) -> None:
    pair = authority.issue("server", "127.0.0.1")
    for first, second in ((None, texts(pair)), (texts(pair), None)):
        write(tmp_path, first)
        with served(tmp_path) as gateway:
            write(tmp_path, second)
            assert "needs_restart=1" in reload(gateway)
            assert "babelgate.reload tls: needs a restart" in gateway.log
            assert gateway.url.startswith("http://" if first is None else "https://")
            assert httpx.get(f"{gateway.url}/healthz", verify=False, timeout=BOUND).status_code == 200


def test_each_listener_has_its_documented_scheme(tmp_path: Path, authority: Authority) -> None:
    soon = authority.issue("server", "127.0.0.1", days=3)
    telemetry = {"metrics": {"listen": "127.0.0.1:0"}}
    write(
        tmp_path, texts(soon), admin={"listen": "127.0.0.1:0"}, keys={"ops": "ops-0123456789abcd"}, telemetry=telemetry
    )
    trust = ssl.create_default_context(cafile=authority.path)
    with served(tmp_path) as gateway:
        (admin,) = re.findall(r"url=(https://\S+)/admin", gateway.logged("administration API served"))
        (metrics,) = re.findall(r"url=(http://\S+)", gateway.logged("metrics served"))
        assert "tls.cert: the certificate expires on" in gateway.logged("WARNING babelgate.tls")
        assert httpx.get(f"{admin}/admin/config", verify=trust, timeout=BOUND).status_code == 401
        text = httpx.get(metrics, timeout=BOUND).text
        (end,) = re.findall(r"^babelgate_tls_certificate_expiry_timestamp_seconds (\S+)$", text, re.MULTILINE)
        assert float(end) == pytest.approx(ServerTls(TlsSettings(**soon._asdict())).expires_at)


def test_all_workers_renew_their_certificate(tmp_path: Path, authority: Authority, postgres_tables: str) -> None:
    empty(postgres_tables)
    write(tmp_path, texts(authority.issue("server", "127.0.0.1")))
    with served(tmp_path, "--database", url_of(postgres_tables), "--workers", "2") as gateway:
        second = swap(tmp_path, authority, "server")
        gateway.process.send_signal(signal.SIGHUP)
        for _ in range(2):
            gateway.logged("configuration reloaded applied=2")
        assert {serial_of(gateway.url) for _ in range(20)} == {second.serial}


def test_a_bad_certificate_stops_the_start(tmp_path: Path, authority: Authority) -> None:
    pair = authority.issue("server", "127.0.0.1")
    write(tmp_path, {"cert": str(pair.cert), "key": str(pair.cert)})
    for command in ("serve", "validate"):
        done = babelgate(tmp_path, command)
        assert done.returncode == 2
        assert done.stderr == f"babelgate: babelgate.yaml: tls.key: {pair.cert}: it has no private key in PEM form\n"


# The context alone


class Observer(GatewayObserver):
    def __init__(self) -> None:
        self.ends: list[float] = []

    def note_certificate(self, expires_at: float) -> None:
        self.ends.append(expires_at)


def settings(pair: Pair, **more: Any) -> TlsSettings:
    result = TlsSettings.model_validate({**pair._asdict(), **more})
    result.note_files()
    return result


def test_a_renewal_is_reported_and_a_bad_one_is_not(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    observer, pair = Observer(), authority.issue("server", "localhost")
    tls = ServerTls(settings(pair), observer)
    first = tls.context.current
    assert isinstance(tls.context, LiveContext)
    assert not tls.renew(settings(pair))
    assert tls.context.current is first
    authority.issue("server", "localhost", days=90)
    assert not tls.renew(settings(pair))
    assert tls.context.current is not first
    assert observer.ends[1] > observer.ends[0]
    assert tls.renew(settings(pair, client_ca=authority.path, client="optional"))
    current = tls.context.current
    pair.key.write_text("broken")
    assert not tls.renew(settings(pair))
    assert tls.context.current is current
    assert "certificate not renewed: tls.key: " in caplog.text
    with pytest.raises(CertificateError):
        ServerTls(settings(pair))


def test_an_expiring_certificate_is_logged_once_a_day(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ServerTls(settings(authority.issue("server", "localhost", days=20)))
    clock: list[float] = [tls.expires_at - 15 * 86_400]
    tls = ServerTls(settings(authority.issue("server", "localhost", days=20)), now=lambda: clock[0])
    counts: list[int] = []
    for hours in (0, 25, 1, 24, 24 * 14):
        clock[0] += hours * 3600
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            tls.check_expiry()
        counts.append(len(caplog.records))
    assert counts == [0, 1, 0, 1, 1]
    assert "the certificate has expired on" in caplog.text
