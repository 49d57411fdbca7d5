"""Tests of settings from flags, variables, a file and defaults, and of error messages with a location."""

import json
import re
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from babelgate.gateway.settings.load import ConfigError, load, read_file
from babelgate.gateway.settings.model import DEMO, AgentSettings, Settings, Timeout, schema
from tests.gateway.settings.problems import problems, written

ROOT = Path(__file__).parents[3]

FULL_FILE = """
host: 127.0.0.1
port: 8000
public_url: https://agents.example.com/
database: sqlite:///x.db
default_agent: weather
keys: {alice: "${ALICE_KEY}", bob: b-key}
network: {allow: ["127.0.0.0/8", "::1"]}
durability: power
blobs: files
trusted_proxies: [10.0.0.1]
cors: ["https://app.example.com", "*"]
limits: {body: 64MB, artifact: 256MB, event: 8MB, inline: 1MB, run: 3600,
         cancel_grace: 5, queue: {agent: 1000, thread: 100, owner: 5000}}
agents:
  echo:    {python: "babelgate.gateway.demo:echo", concurrency: 4, continuable: true, replay: false,
            description: Says it again.}
  weather: {url: "http://127.0.0.1:9000/"}
  planner: {url: "https://p.example.com", protocol: acp, agent: planner, headers: {Authorization: "Bearer ${TOKEN}"},
            timeout: 120, idempotent: true}
  slow:    {url: "https://s.example.com", timeout: {connect: 5, read: 60, total: 120}}
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables of the test file, and remove PORT."""
    monkeypatch.delenv("PORT", raising=False)
    monkeypatch.setenv("ALICE_KEY", "a-key")
    monkeypatch.setenv("TOKEN", "t")


# Files


def test_every_key_of_the_file_is_applied(file: Path) -> None:
    settings = written(file, FULL_FILE)
    assert settings.public_url == "https://agents.example.com"
    [key] = settings.keys["alice"]
    assert key.key is not None and key.key.get_secret_value() == "a-key"
    assert settings.network.allow == (ip_network("127.0.0.0/8"), ip_network("::1"))
    assert settings.trusted_proxies == (ip_network("10.0.0.1"),)
    assert settings.cors == ("https://app.example.com", "*")
    assert settings.limits.body == 64 * 2**20
    assert settings.limits.queue.thread == 100
    assert settings.blobs_path == Path("files")
    assert settings.agents["echo"] == AgentSettings(
        python="babelgate.gateway.demo:echo",
        concurrency=4,
        continuable=True,
        replay=False,
        description="Says it again.",
    )
    planner = settings.agents["planner"]
    assert planner.headers["Authorization"].get_secret_value() == "Bearer t"
    assert planner.timeout == Timeout(total=120)
    assert planner.timeout.connect == 5, "a plain number sets only the total"
    assert settings.agents["slow"].timeout == Timeout(connect=5, read=60, total=120)
    assert list(settings.agents) == ["echo", "weather", "planner", "slow"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cluster: true", "cluster needs PostgreSQL"),
        ("cluster: true\ndatabase: sqlite:///x.db\nblobs: files", "cluster needs PostgreSQL"),
        ("cluster: true\ndatabase: postgresql://x/y", "files where all nodes can reach them"),
        (
            "cluster: true\ndatabase: postgresql://x/y\nblobs: files\nstandby: true",
            "standby cannot be combined with cluster",
        ),
    ],
)
def test_a_cluster_needs_a_shared_database_and_shared_files(file: Path, text: str, expected: str) -> None:
    (problem,) = problems(file, text)
    assert expected in problem


def test_a_cluster_accepts_postgresql_with_shared_files(file: Path) -> None:
    for files in ("blobs: /shared", "artifacts: s3://bucket"):
        assert written(file, f"cluster: true\ndatabase: postgresql://x/y\n{files}").cluster


def test_without_agents_the_demo_agents_are_served(file: Path) -> None:
    assert tuple(load().agents) == DEMO
    assert tuple(written(file, "").agents) == DEMO
    assert tuple(written(file, "agents:\n").agents) == DEMO
    assert load(None, {"agents": {}}).agents == {}, "the command line must name the flag"


def test_files_are_stored_next_to_the_database(file: Path) -> None:
    assert written(file, "database: sqlite:////var/lib/gate.db").blobs_path == Path("/var/lib/gate.blobs")
    assert written(file, "database: postgresql://jane@db/gate").blobs_path == Path("babelgate.blobs")


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("64MB", 64 * 2**20), ("64 mb", 64 * 2**20), ("1.5KiB", 1536), ("2GB", 2 * 2**30)]
)
def test_sizes_have_units(file: Path, text: str, size: int) -> None:
    assert written(file, f"limits: {{body: {text}}}").limits.body == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5), ("5s", 5), ("5m", 300), ("1.5 H", 5400), ("2d", 172_800), ("1w", 604_800)]
)
def test_durations_have_units(file: Path, validator: Any, text: str, seconds: float) -> None:
    content = f"limits: {{run: {text}, cancel_grace: {text}}}\nagents: {{a: {{url: http://x, timeout: {text}}}}}"
    settings = written(file, content)
    found = (settings.limits.run, settings.limits.cancel_grace, settings.agents["a"].timeout.total)
    assert found == (seconds, seconds, seconds)
    assert validator.is_valid(yaml.safe_load(content))


def test_every_duration_accepts_a_unit() -> None:
    def numbers(each: Any) -> Iterator[Any]:
        """Yield the schemas that allow a number but no text."""
        inner: list[Any] = cast("list[Any]", each) if isinstance(each, list) else []
        if isinstance(each, dict):
            members = cast("dict[str, Any]", each)
            kinds: list[Any] = [kind.get("type") for kind in members.get("anyOf", [members])]
            if "number" in kinds and "string" not in kinds:
                yield members
            inner = [value for name, value in members.items() if name != "anyOf" or "number" not in kinds]
        for value in inner:
            yield from numbers(value)

    settings = schema()
    for section, amounts in {"PriceSettings": ("input", "output", "run"), "BudgetSettings": ("cost",)}.items():
        for name in amounts:  # amounts of money
            del settings["$defs"][section]["properties"][name]
    assert [*numbers(settings)] == []


# Sources of values


def test_a_flag_overrides_a_variable_and_a_variable_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("port: 1\nhost: file\ndatabase: sqlite:///file.db\nlimits: {run: 1, body: 1}", encoding="utf-8")
    monkeypatch.setenv("BABELGATE_PORT", "2")
    monkeypatch.setenv("BABELGATE_HOST", "variable")
    monkeypatch.setenv("BABELGATE_LIMITS__RUN", "2")
    settings = load(file, {"port": 3})
    assert (settings.port, settings.host, settings.database) == (3, "variable", "sqlite:///file.db")
    assert (settings.limits.run, settings.limits.body) == (2, 1), "sections are joined key by key"


def test_a_conflict_of_flags_is_reported_without_a_location() -> None:
    with pytest.raises(ConfigError) as error:
        load(None, {"workers": 2})
    assert str(error.value).startswith("several workers need PostgreSQL")


def test_babelgate_port_overrides_port(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("port: 1", encoding="utf-8")
    monkeypatch.setenv("PORT", "2")
    assert load(file).port == 2
    monkeypatch.setenv("BABELGATE_PORT", "3")
    assert load(file).port == 3


def test_variables_hold_lists_and_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BABELGATE_CORS", "http://a.example, http://b.example:1")
    monkeypatch.setenv("BABELGATE_NETWORK__ALLOW", '["10.0.0.0/8"]')
    monkeypatch.setenv("BABELGATE_KEYS", '{"alice": "k"}')
    monkeypatch.setenv("BABELGATE_AGENTS__WEATHER__URL", "http://127.0.0.1:9000")
    settings = load()
    assert settings.cors == ("http://a.example", "http://b.example:1")
    assert settings.network.allow == (ip_network("10.0.0.0/8"),)
    [key] = settings.keys["alice"]
    assert key.key is not None and key.key.get_secret_value() == "k"
    assert list(settings.agents) == ["weather"]


def test_an_agent_of_the_command_line_replaces_the_files_agent(file: Path) -> None:
    file.write_text('agents: {a: {python: "m:a", concurrency: 3}, b: {python: "m:b"}}', encoding="utf-8")
    settings = load(file, {"agents": {"a": {"url": "http://127.0.0.1:1"}}})
    assert settings.agents["a"] == AgentSettings(url="http://127.0.0.1:1")
    assert settings.agents["b"].python == "m:b"


def test_settings_built_in_code_ignore_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BABELGATE_PORT", "2")
    assert Settings().port == 8000


def test_a_variable_in_a_string_is_replaced_unless_escaped(file: Path) -> None:
    agents = 'agents: {a: {url: "http://${HOST_OF_A}:9000/${TOKEN}", headers: {X: "$${TOKEN} $TOKEN"}}}'
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOST_OF_A", "a.example")
        agent = written(file, agents).agents["a"]
    assert agent.url == "http://a.example:9000/t"
    assert agent.headers["X"].get_secret_value() == "${TOKEN} $TOKEN"


def test_an_unset_variable_is_reported_by_name(file: Path) -> None:
    found = problems(file, 'keys: {eve: "${NOT_SET}"}\nagents: {a: {url: "http://${NOT_SET_2}"}}')
    assert found == ["keys.eve: the variable NOT_SET is not set", "agents.a.url: the variable NOT_SET_2 is not set"]


# Mistakes

_LAUGHS = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else '*a'] * 9)}]\n" for n in range(40))
"""Nested aliases that expand to 9 ** 41 values."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prot: 1", "prot: there is no such key; there are host, port, public_url"),
        ("limits: {rum: 1}", "limits.rum: there is no such key; there are body, values, artifact"),
        ("limits: {queue: {threads: 1}}", "limits.queue.threads: there is no such key; there are agent, thread, owner"),
        ("agents: {a: {pyhton: m:a}}", "agents.a.pyhton: there is no such key; there are python, graph, url, urls"),
        ("port: many", "port: a valid integer"),
        ("port: 70000", "port: less than or equal to 65535"),
        ("database: mysql://x", "database: allowed: sqlite:/// and a file"),
        ("artifacts: s3://b", "artifacts: allowed: s3://bucket or s3://bucket/prefix"),
        ("pooler: mysql://x", "pooler: allowed: postgresql://user@host/name"),
        ("pooler: postgresql://x/y", "pooler needs PostgreSQL"),
        ("workers: 2", "several workers need PostgreSQL"),
        ("durability: none", "durability: allowed: 'process' or 'power'"),
        ("public_url: agents.example.com", "public_url: an http:// or https:// URL"),
        ("public_url: http://u:p@x", "public_url: a URL without a user and password"),
        ("limits: {body: 64XB}", "limits.body: a size is a number of bytes, or a number with a unit, such as 64MB"),
        ("limits: {body: 0}", "limits.body: greater than 0"),
        ("limits: {run: .inf}", "limits.run: a finite number"),
        ("limits: {run: 5 min}", "limits.run: a period is a number of seconds, or a number with a unit"),
        ("limits: {run: true}", "limits.run: a period is a number of seconds, or a number with a unit"),
        ("limits: {run: 0s}", "limits.run: greater than 0"),
        ("limits: {window: 2s}", "limits.window: less than or equal to 1"),
        ("network: {allow: [10.0.0.0/33]}", "network.allow.0: an address or a network, such as 10.0.0.0/8"),
        ("cors: [https://x/path]", "cors.0: an origin is scheme, host and port"),
        ("keys: {a: same, b: same}", "keys: entries 1 and 2 have the same key"),
        ('keys: {a: ""}', "keys: the key of entry 1 is not printable ASCII without spaces"),
        ("default_agent: nobody", "default_agent: there is no such agent; there are echo, stream"),
        ("agents: {Bad_Name: {python: m:a}}", "agents.Bad_Name: an agent's name is 1 to 63 of a-z, 0-9"),
        ("agents: {a: {python: m:a, url: http://x}}", "agents.a: an agent has one of python: module:name, graph"),
        ("agents: {a: {}}", "agents.a: an agent has one of python: module:name, graph"),
        ("agents: {a: {python: m:a, agent: b}}", "agents.a: agent is for agents with a url"),
        ("agents: {a: {python: just_a_module}}", "agents.a.python: allowed: module:name"),
        ("agents: {a: {graph: ./graphs.py}}", "agents.a.graph: allowed: module:name"),
        (
            "agents: {a: {graph: m:a, headers: {X-A: b}}}",
            "agents.a: headers is for agents with a url, and this one has graph",
        ),
        (
            "agents: {a: {url: http://x, tool: t, protocol: acp}}",
            "agents.a: tool is for agents with protocol: mcp, and replaces agent",
        ),
        ("agents: {a: {url: http://x, protocol: soap}}", "agents.a.protocol: allowed: 'a2a', 'acp', 'ag-ui'"),
        (
            "agents: {a: {protocol: agent-client, cwd: /}}",
            "agents.a: protocol: agent-client needs command, and no ",
        ),
        ("agents: {a: {protocol: agent-client, command: [x]}}", "agents.a: protocol: agent-client needs cwd"),
        (
            "agents: {a: {protocol: agent-client, command: [x], cwd: /, url: http://x}}",
            "agents.a: protocol: agent-client needs command, and no url",
        ),
        (
            "agents: {a: {protocol: agent-client, command: [x], cwd: /, headers: {X: y}}}",
            "agents.a: headers is for agents with a url, and this one has a command alone",
        ),
        ("agents: {a: {protocol: mcp, command: [x]}}", "agents.a: protocol: mcp needs tool: the name of one tool"),
        ("agents: {a: {protocol: a2a, command: [x]}}", "agents.a: protocol: a2a needs url: the address"),
        (
            "agents: {a: {tool: t, command: [x], headers: {X: y}}}",
            "agents.a: headers is for agents with a url, and this one has a command alone",
        ),
        (
            "agents: {a: {tool: t, command: [x], urls: [http://x, http://y]}}",
            "agents.a: command needs url: the address",
        ),
        ("agents: {a: {tool: t, command: [x], cwd: '/{thread}'}}", "agents.a: cwd: {thread} is for coding agents"),
        (
            "agents: {a: {tool: t, command: [x], coding: {files: read}}}",
            "agents.a: coding is for agents with protocol: agent-client",
        ),
        ("agents: {a: {tool: t}}", "agents.a: an agent has one of python: module:name, graph"),
        ("agents: {a: {url: http://x, coding: {files: read}}}", "agents.a: coding is for agents with a command"),
        ("agents: {a: {url: http://x, timeout: {reed: 1}}}", "agents.a.timeout.reed: there is no such key; there are"),
        ("agents: {a: {url: http://x, timeout: 0}}", "agents.a.timeout.total: greater than 0"),
        ("agents: {a: {url: http://x, headers: {a b: c}}}", "agents.a.headers: the name of entry 1 is not the name"),
        (
            'agents: {a: {url: http://x, headers: {X: "ключ"}}}',
            "agents.a.headers: the value of X is not printable ASCII",
        ),
        (
            'agents: {a: {url: http://x, headers: {X: "a\\r\\nY: b"}}}',
            "agents.a.headers: the value of X is not printable",
        ),
        ("agents: {a: m:a}", "agents.a: a mapping of keys is expected: python, graph, url"),
        ("agents: [a]", "agents: a mapping of keys is expected"),
        ("- a", "the file is a mapping of keys, such as agents: …"),
        ("port: 1\nport: 2", ", line 2, column 1: this key occurs twice"),
        ("agents: {a: {python: ]}", ", line 1, column 22: "),
        ("a: &a [*a, *b]", ", line 1, column 12: found undefined alias"),
        ("a: &a [*a]", "a value contains itself by an alias (*name): write the value out"),
        ("a: &a {b: [{c: *a}]}", "a value contains itself by an alias (*name): write the value out"),
        ("a: &a [1,2,3,4,5,6,7,8,9]\n" + _LAUGHS, "with its aliases (*name) it has more than 100000 values"),
    ],
)
def test_a_mistake_is_reported_with_location_and_allowed_values(file: Path, text: str, expected: str) -> None:
    (problem,) = problems(file, text)
    assert problem.startswith(expected)


def test_all_mistakes_are_reported_together(file: Path) -> None:
    assert len(problems(file, "port: x\ndurability: y\nlimits: {run: z}")) == 3


def test_a_mistake_names_its_source(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("port: 1\nlimits: {run: 1}", encoding="utf-8")
    monkeypatch.setenv("PORT", "x")
    monkeypatch.setenv("BABELGATE_LIMITS__RUN", "x")
    with pytest.raises(ConfigError) as caught:
        load(file, {"log_level": "loud"})
    places = [problem.split(":")[0] for problem in caught.value.problems]
    assert sorted(places) == ["--log-level", "BABELGATE_LIMITS__RUN", "PORT"]


def test_a_variable_with_invalid_json_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BABELGATE_KEYS", "alice=secret-word")
    with pytest.raises(ConfigError, match="BABELGATE_KEYS: it is not JSON") as caught:
        load()
    assert "secret-word" not in str(caught.value)


def test_an_unreadable_file_is_reported_in_one_line(tmp_path: Path, file: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no such file$"):
        read_file(file)
    with pytest.raises(ConfigError, match="it cannot be read: Is a directory"):
        read_file(tmp_path)
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="it cannot be read: it is not UTF-8"):
        read_file(file)


@pytest.mark.parametrize(
    "text",
    [
        "keys: {alice: s3cret, bob: s3cret}",
        "keys: {alice: [s3cret, s3cret]}",
        "keys: {alice: [[s3cret]]}",
        "keys: {alice: {s3cret: a}}",
        "keys: {alice: {hash: s3cret}}",
        "keys: {alice: {key: s3 cret, expires: s3cret}}",
        "keys: s3cret",
        'agents: {a: {url: http://x, headers: {X: "s3cret \\n"}}}',
        "agents: {a: {url: http://x, headers: {X: [s3cret]}}}",
        "agents: {a: {url: http://x, headers: s3cret}}",
    ],
)
def test_a_key_is_never_printed(file: Path, text: str) -> None:
    assert "s3cret" not in "".join(problems(file, text))


def test_secrets_are_not_in_the_repr_of_the_settings(file: Path) -> None:
    settings = written(file, FULL_FILE)
    for text in (repr(settings), str(settings), settings.model_dump_json()):
        assert "a-key" not in text
        assert "Bearer t" not in text


def test_settings_are_immutable() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValidationError):
        Settings().limits.run = 1  # pyright: ignore[reportAttributeAccessIssue]


# The schema


def test_the_published_schema_is_current(accept: bool) -> None:
    published = ROOT / "gateway" / "babelgate.schema.json"
    text = json.dumps(schema(), indent=2) + "\n"
    if accept:
        published.write_text(text, encoding="utf-8")
    assert published.read_text(encoding="utf-8") == text, "run make accept"


@pytest.fixture(scope="module")
def validator() -> Any:
    """Validator of the schema. Shared, because checking the schema takes longer than all validations below."""
    content = schema()
    jsonschema.Draft202012Validator.check_schema(content)
    return jsonschema.Draft202012Validator(content)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (FULL_FILE, True),
        ("agents: {}", True),
        ("agents: {a: {python: m:a, timeout: 3}}", True),
        ("limits: {body: 100}", True),
        ("limits: {body: 64XB}", False),
        ("prot: 1", False),
        ("agents: {a: {}}", False),
        ("agents: {a: {python: m:a, url: http://x}}", False),
        ("agents: {a: {python: m:a, timeout: {reed: 1}}}", False),
        ("durability: none", False),
    ],
)
def test_the_schema_accepts_what_the_gateway_does(validator: Any, text: str, valid: bool) -> None:
    settings: Any = yaml.safe_load(text)
    assert validator.is_valid(settings) is valid


def test_the_examples_of_the_documentation_are_valid(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_TOKEN", "t")
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    examples = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if not text.startswith("#")]
    assert examples
    for name in ("alice", "planner"):
        (file.parent / name).write_text(f"the secret of {name}".replace(" ", "-"))
    for text in examples:
        assert written(file, text.replace("/run/secrets", str(file.parent))).agents


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///a@b:c.db", "sqlite:///a@b:c.db"),
        ("postgresql://db:5432/gate", "postgresql://db:5432/gate"),
        ("postgres://jane@db/gate?sslmode=require", "postgres://jane@db/gate?sslmode=require"),
        ("postgresql://jane:a:b/c@db/gate", "postgresql://jane:***@db/gate"),
        (
            "postgresql:///gate?host=db&user=jane&password=abc&x=y",
            "postgresql:///gate?host=db&user=jane&password=***&x=y",
        ),
    ],
)
def test_the_password_of_a_database_url_is_hidden(url: str, expected: str) -> None:
    assert Settings(database=url).database_shown == expected


# The console


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", (True, True, "failures")),
        ("false", (False, True, "failures")),
        ("{jobs: false}", (True, False, "failures")),
        ("{wire: all}", (True, True, "all")),
        ("{enabled: false, wire: off}", (False, True, "off")),
    ],
)
def test_the_console_is_a_switch_or_a_section(file: Path, value: str, expected: tuple[object, ...]) -> None:
    console = written(file, f"console: {value}").console
    assert (console.enabled, console.jobs, console.wire) == expected


def test_variables_switch_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BABELGATE_CONSOLE__WIRE", "all")
    assert load().console.wire == "all"
    monkeypatch.setenv("BABELGATE_CONSOLE", "false")
    assert not load().console.enabled


def test_a_wrong_value_of_the_console_is_named(file: Path) -> None:
    (problem,) = problems(file, "console: {wire: some}")
    assert problem.endswith("console.wire: allowed: 'off', 'failures' or 'all'")
    (problem,) = problems(file, "console: 3")
    assert "a mapping of keys is expected: enabled, jobs, wire" in problem
