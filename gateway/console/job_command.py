"""Command line of a job's process. Secrets are in the environment of the process, and never among its arguments."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from msgspec import UNSET

import babelgate
from babelgate.adapters import ADAPTERS
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.console.job_order import BenchChoices, CheckChoices, Choices
from babelgate.gateway.console.job_record import JobRecord
from babelgate.gateway.console.job_store import HTML, JUNIT, REPORT
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.tls import TlsSettings

OUT: Final = "out"
"""Name of the folder, in that of the job, into which a benchmark writes its files."""
_CONFIG: Final = "agents.yaml"
_HEADERS: Final = "BABELGATE_HEADERS"
_PINNED: Final = "BABELGATE_PINNED_CERTIFICATE"
"""Environment variable with the path of a certificate, read by `babelgate.conformance.wire.tls`."""
_INHERITED: Final = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "SYSTEMROOT", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE"),
)
"""Environment variables that a job inherits from the gateway. All others are left out, because they may be secrets."""
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
"""Environment variables that set proxies for httpx, in lower case. Only a job that calls agents' servers inherits them,
because a proxy does not reach the gateway's own address."""


@dataclass(frozen=True, slots=True)
class JobEndpoint:
    """URL, settings and headers with which a job calls one agent."""

    name: str
    settings: Mapping[str, Any]
    """Settings of the agent without headers, in the form of `agents` in the configuration."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    ca: Path | None = None
    """File with CAs or certificates to trust in addition to those of the system; None for no others."""
    pinned: Path | None = None
    """File with the only certificate to trust, at any address; None to trust CAs."""

    @property
    def url(self) -> str:
        return self.settings["url"] if "url" in self.settings else self.settings["urls"][0]


@dataclass(frozen=True, slots=True)
class JobCommand:
    """Arguments and environment of a job's process."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    config: str | None = None
    """Content of the configuration file with the agents; None if the command needs none. Its headers refer to
    environment variables."""

    def write_config(self, folder: Path) -> None:
        """Write the configuration file into the job's folder, if the command needs one. Raises OSError if it cannot be
        written."""
        if self.config is not None:
            (folder / _CONFIG).write_text(self.config, encoding="utf-8")


def through_gateway(
    base_url: str, name: str, protocol: str | None, key: str | None, tls: TlsSettings | None = None
) -> JobEndpoint:
    """Return the endpoint of an agent at this gateway, for a job that tests the gateway, too.

    Without a `protocol`, the URL is that of the agent, at which protocols are detected. `key` is a temporary API key;
    None if none is needed. `tls` are the settings of TLS on the gateway's port.
    """
    url = agent_url = f"{base_url}/agent/{name}"
    if protocol is not None:
        for example in (each for adapter in ADAPTERS for each in adapter.examples(agent_url, name)):
            title = example.label.lower().replace(" ", "-")
            if f"{title}-".startswith(f"{protocol}-") or f"{protocol}-".startswith(f"{title}-"):
                url = example.url
                break
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return JobEndpoint(name, {"url": url}, headers, pinned=None if tls is None else tls.cert.absolute())


def at_server(registered: RegisteredAgent) -> JobEndpoint:
    """Return the endpoint of an agent at its own server. Raises invalid for an agent that has no server.

    Raises invalid also for an agent that was added over the administration API: only the gateway checks that each
    connection is to an address in `admin.agent_networks`.
    """
    name, settings = registered.info.name, registered.settings
    if settings is not None and settings.networks is not None:
        words = f"at: the agent {name} was added over the administration API, so only the gateway may call its server"
        raise FaultError(FaultCode.INVALID, f"{words}; use at: gateway")
    if settings is not None and settings.servers:
        members = {"url", "urls", "agent", "protocol", "options"}
        headers = {name: secret.get_secret_value() for name, secret in settings.headers.items()}
        values = settings.model_dump(mode="json", include=members, exclude_defaults=True)
        paths = {} if settings.tls is None else {key: str(path.absolute()) for key, path in settings.tls.paths.items()}
        ca = None if settings.tls is None or settings.tls.ca is None else settings.tls.ca.absolute()
        return JobEndpoint(name, {**values, "tls": paths} if paths else values, headers, ca)
    if registered.server is not None:
        described = registered.described or registered.info
        return JobEndpoint(name, {"url": registered.server, "agent": described.name})
    words = f"at: the agent {name} has no server of its own; use at: gateway"
    raise FaultError(FaultCode.INVALID, words)


def command_of(record: JobRecord, choices: Choices, endpoints: Sequence[JobEndpoint], folder: Path) -> JobCommand:
    """Return the command of a job that calls agents at these endpoints and works in a folder."""
    if isinstance(choices, BenchChoices):
        return _bench(record, choices, endpoints, folder)
    return _check(record, choices, endpoints[0], folder)


def _check(record: JobRecord, choices: CheckChoices, endpoint: JobEndpoint, folder: Path) -> JobCommand:
    arguments = ["check", "--progress=json", f"--json={REPORT}", f"--html={HTML}"]
    if record.kind == "across":
        arguments.append("--across")
    else:
        arguments += [f"--junit={JUNIT}", *_options({"protocol": record.protocol, "version": choices.version})]
    arguments += _options({"only": choices.only, "triggers": choices.triggers, "never": choices.never})
    arguments += _options({"timeout": choices.timeout, "ca": endpoint.ca})
    arguments += [f"--trigger={behaviour}={text}" for behaviour, text in choices.trigger.items()]
    headers = "\n".join(f"{name}: {value}" for name, value in endpoint.headers.items())
    variables = {_HEADERS: headers} if headers else {}
    environment = {**_environment(record, folder), **_pin([endpoint]), **variables}
    return JobCommand([*arguments, "--", endpoint.url], environment)


def _bench(record: JobRecord, choices: BenchChoices, endpoints: Sequence[JobEndpoint], folder: Path) -> JobCommand:
    arguments = ["bench", "--progress=json", f"--config={_CONFIG}", f"--out={OUT}"]
    arguments += _options(
        {
            "repeat": choices.repeat,
            "concurrency": choices.concurrency,
            "seed": choices.seed,
            "task": choices.task,
            "category": choices.category,
            "max-time": choices.max_time,
            "max-tokens": choices.max_tokens,
            "max-cost": choices.max_cost,
        }
    )
    variables: dict[str, str] = {}
    agents: JsonObject = {}
    for endpoint in endpoints:
        headers: dict[str, str] = {}
        for name, value in endpoint.headers.items():
            variable = f"JOB_HEADER_{len(variables) + 1}"
            variables[variable] = value
            headers[name] = f"${{{variable}}}"
        escaped = json.loads(json.dumps(endpoint.settings).replace("${", "$${"))
        agents[endpoint.name] = {**escaped, **({"headers": headers} if headers else {})}
    arguments += ["--", choices.suite, *(endpoint.name for endpoint in endpoints)]
    environment = {**_environment(record, folder), **_pin(endpoints), **variables}
    return JobCommand(arguments, environment, json.dumps({"agents": agents}))


def _pin(endpoints: Sequence[JobEndpoint]) -> Mapping[str, str]:
    """Return the environment variable with the certificate that a job trusts, or nothing. All agents behind a gateway
    have the same certificate."""
    pinned = next((each.pinned for each in endpoints if each.pinned is not None), None)
    return {} if pinned is None else {_PINNED: str(pinned)}


def _options(values: Mapping[str, object]) -> Sequence[str]:
    """Return options of the command line, such as `--seed=7`. An option without a value is left out, and one with a
    tuple is repeated."""
    arguments: list[str] = []
    for name, value in values.items():
        if isinstance(value, tuple):
            arguments += [f"--{name}={each}" for each in cast("tuple[object, ...]", value)]
        elif value is not None and value is not UNSET:
            arguments.append(f"--{name}={value}")
    return arguments


def _environment(record: JobRecord, folder: Path) -> Mapping[str, str]:
    """Return the environment variables of a job's process. They make it find the same Python packages as this process,
    and use the same proxies."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    if record.at == "server":
        inherited |= {name: value for name, value in os.environ.items() if name.lower() in _PROXIES}
    packages = [str(Path(babelgate.__file__).parent.parent), *inherited.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(filter(None, packages)),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(folder),
    }
