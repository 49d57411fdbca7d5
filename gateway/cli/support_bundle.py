"""`babelgate support-bundle`: collect diagnostics for support in one archive, without bodies and secrets.

Each part is collected separately. If one fails, it is missing, and the manifest has the reason.
"""

import json
import os
import platform
import sqlite3
import ssl
import sys
import zipfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Final

import click
import httpx
import yaml

from babelgate.adapters.kit.client.tls import default_context
from babelgate.canonical.value import JsonObject
from babelgate.conformance.wire.tls import pin_certificate
from babelgate.gateway.cli.database import connect_to_any, reason_of
from babelgate.gateway.cli.errors import CliError
from babelgate.gateway.cli.listener import is_loopback
from babelgate.gateway.settings.fields import split_listen
from babelgate.gateway.settings.load import ConfigError, load
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.settings.redaction import Scrubber, redact
from babelgate.gateway.settings.tls import TlsSettings
from babelgate.gateway.storage.database import HEAD, DatabaseError
from babelgate.gateway.storage.permission import PRIVATE_FILE
from babelgate.gateway.storage.row_counts import count_rows
from babelgate.gateway.telemetry.listener import PATH, STACKS
from babelgate.gateway.telemetry.stacks import read_limits

_LINES: Final = 2000
"""Maximum number of log lines in the bundle; the newest are included. Chosen."""
_LINE_LENGTH: Final = 16 * 1024
"""Maximum length of one log line, in characters, as for lines that the gateway writes."""
_TIMEOUT: Final = 10.0
"""Maximum seconds to wait for one response of the running gateway. Chosen: the gateway may be slow, which may be the
reason for the bundle."""
_NO_METRICS: Final = "telemetry.metrics.listen is not set"
_NOT_READ: Final = "the configuration could not be read"


class MissingPart(Exception):
    """Part of the bundle that cannot be collected. The message is the reason."""


@dataclass(frozen=True, slots=True)
class BundleOptions:
    """Options of `babelgate support-bundle`."""

    log: Path | None = None
    """File with the log of the gateway; None for no log."""
    url: str | None = None
    """URL of the running gateway; None uses the address in the settings."""
    key: str | None = None
    """API key with which `/readyz` shows details; None for no key."""


def write_bundle(out: Path, config: Path | None, database: str | None, options: BundleOptions) -> None:
    """Write the archive to the file `out`, and print the names of its parts. Raises CliError if the file exists already
    or cannot be written.

    `config` is the configuration file (None: no file), and `database` replaces its database, unless it is None.
    """
    flags: JsonObject = {} if database is None else {"database": database}
    try:
        settings, problems = load(config, flags), ()
    except ConfigError as error:
        settings, problems = None, error.problems
        click.echo(f"babelgate: warning: {_NOT_READ}: {'; '.join(problems)}", err=True)
    scrubber = Scrubber.of(settings, config, options.key or "")
    texts, missing = _collect(_parts(settings, problems, options), scrubber)
    manifest = {"created": datetime.now(UTC).isoformat(timespec="seconds"), "missing": missing}
    texts["manifest.json"] = _json(manifest)
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    except FileExistsError:
        raise CliError(f"{out}: the file exists already; give another name") from None
    except OSError as error:
        raise CliError(f"{out}: it cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, text.encode("utf-8", "backslashreplace"))
    click.echo(f"{out}: {', '.join(texts)}")
    for name, reason in missing.items():
        click.echo(f"babelgate: {out} has no {name}: {reason}", err=True)


Part = Callable[[], str]


def _collect(parts: Mapping[str, Part], scrubber: Scrubber) -> tuple[dict[str, str], dict[str, str]]:
    """Collect the parts of the bundle. Return their texts without secrets, and the reasons for which other parts are
    missing, both by name."""
    texts, missing = dict[str, str](), dict[str, str]()
    for name, collect in parts.items():
        try:
            texts[name] = scrubber.clean(collect())
        except MissingPart as error:
            missing[name] = scrubber.clean(str(error))
        except Exception as error:  # a bug in one part must not cost the others
            missing[name] = f"{type(error).__name__} in the gateway's own code"
    return texts, missing


def _parts(settings: Settings | None, problems: Sequence[str], options: BundleOptions) -> Mapping[str, Part]:
    def needing(collect: Callable[[Settings], str]) -> Part:
        def part() -> str:
            if settings is None:
                raise MissingPart(f"{_NOT_READ}: {'; '.join(problems)}")
            return collect(settings)

        return part

    return {
        "versions.json": lambda: _json(_versions()),
        "limits.json": lambda: _json(read_limits()),
        "settings.yaml": lambda: "\n".join(problems) if settings is None else _yaml(redact(settings)),
        "database.json": needing(_describe_database),
        "readyz.json": needing(lambda found: _get_readiness(found, options)),
        "metrics.txt": needing(lambda found: _get_from_metrics(found, PATH)),
        "stacks.txt": needing(lambda found: _get_from_metrics(found, STACKS)),
        "log.txt": needing(lambda _: _read_log(options.log)),  # else its secrets are not known
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _yaml(value: JsonObject) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


def _versions() -> JsonObject:
    packages = {each.metadata["Name"]: each.version for each in distributions()}
    return {
        "babelgate": version("babelgate"),
        "schema": HEAD,
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "sqlite": sqlite3.sqlite_version,
        "packages": dict(sorted(packages.items())),
    }


def _describe_database(settings: Settings) -> str:
    try:
        with connect_to_any(settings) as (connection, revision), connection.begin():
            return _json({"revision": revision, "expected": HEAD, "rows": dict(count_rows(connection))})
    except CliError as error:
        raise MissingPart(str(error)) from None
    except DatabaseError as error:
        raise MissingPart(f"{settings.database_shown} cannot be read: {reason_of(error)}") from None


def _get_readiness(settings: Settings, options: BundleOptions) -> str:
    scheme = "http" if settings.tls is None else "https"
    url = options.url or f"{scheme}://{_reachable(settings.host)}:{settings.port}"
    headers = {} if options.key is None else {"X-Api-Key": options.key}
    tls = _pin(settings.tls) if options.url is None and settings.tls is not None else None
    return _get(f"{url.rstrip('/')}/readyz", headers, accepted=(200, 503), tls=tls)


def _pin(settings: TlsSettings) -> ssl.SSLContext:
    """Return a TLS context that trusts only the certificate of the gateway, at any address. Raises MissingPart if the
    certificate cannot be read."""
    try:
        return pin_certificate(settings.cert)
    except OSError as error:
        raise MissingPart(f"tls.cert: {settings.cert} cannot be used: {error.strerror}") from None


def _get_from_metrics(settings: Settings, path: str) -> str:
    metrics = settings.telemetry.metrics
    if metrics.listen is None:
        raise MissingPart(_NO_METRICS)
    host, port = split_listen(metrics.listen)
    return _get(f"http://{_reachable(host)}:{port}{path}", {})


def _reachable(host: str) -> str:
    """Return the host for a URL at which a listener on `host` is reached from this machine: 127.0.0.1 for 0.0.0.0, for
    example."""
    address = host if is_loopback(host) else {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{address}]" if ":" in address else address


def _get(
    url: str, headers: Mapping[str, str], *, accepted: Sequence[int] = (200,), tls: ssl.SSLContext | None = None
) -> str:
    try:
        verify = default_context() if tls is None else tls
        response = httpx.get(url, headers=headers, timeout=_TIMEOUT, trust_env=False, verify=verify)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise MissingPart(f"{url} cannot be reached: {str(error) or type(error).__name__}") from None
    if response.status_code not in accepted:
        raise MissingPart(f"{url} answered with the status {response.status_code}")
    return response.text


def _read_log(path: Path | None) -> str:
    if path is None:
        raise MissingPart("no file was given with --log")
    try:
        with path.open(encoding="utf-8", errors="backslashreplace") as file:
            lines = deque((line[:_LINE_LENGTH].rstrip("\n") for line in file), maxlen=_LINES)
    except OSError as error:
        raise MissingPart(f"{path} cannot be read: {error.strerror}") from None
    return "\n".join(lines) + "\n"
