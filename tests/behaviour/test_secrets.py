"""Error messages about invalid settings: they never show a secret, in any setting and with any kind of error."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel, SecretStr

from babelgate.gateway.settings.load import ConfigError, load
from babelgate.gateway.settings.model import Settings
from tests.gateway.command import babelgate

SECRET = "s3cret"
BEARER = f"Bearer {SECRET}"
Steps = tuple[str, ...]

SHAPES: dict[str, Any] = {
    "the secret": SECRET,
    "no printable one": f"{SECRET}\u2028é",
    "a URL that holds it": f"http://user:{SECRET}@host:port?{SECRET}",
    "a list": [SECRET],
    "a list of lists": [[SECRET]],
    "a mapping": {"name": SECRET},
    "a mapping to a list": {"name": [SECRET]},
    "a mapping to the empty": {f"Authorization:{BEARER}": None},
    "a mapping from it": {BEARER: ["name"]},
    "a variable": "${THE_SECRET}",
    "JSON": json.dumps({"name": [SECRET]}),
    "no JSON": f'{{"name": {SECRET}',
}


def models(annotation: Any, step: Steps = ()) -> Iterator[tuple[Steps, type[BaseModel]]]:
    """Yield the models in an annotation, each with the placeholder member name if it is the value of a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield step, annotation
    for each in get_args(annotation):
        yield from models(each, ("a",) if get_origin(annotation) is dict else step)


def settings_of(model: type[BaseModel], above: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Yield the path and type of every setting."""
    for name, field in model.model_fields.items():
        yield (*above, name), field.annotation
        for step, inner in models(field.annotation):
            yield from settings_of(inner, (*above, name, *step))


SETTINGS = list(settings_of(Settings))
SECRETS = [path for path, annotation in SETTINGS if SecretStr in get_args(annotation) or annotation is SecretStr]
"""Paths of the settings whose type is secret. Both are mappings from names to secrets."""


def nested(paths: Sequence[Steps], value: Any) -> dict[str, Any]:
    """Return a settings file in which each path has the value. A path overrides the settings above it."""
    settings: dict[str, Any] = {}
    for path in sorted(paths, key=len):
        inner = settings
        for step in path[:-1]:
            if not isinstance(inner.get(step), dict):
                inner[step] = {}
            inner = inner[step]
        inner[path[-1]] = value
    return settings


def hidden(text: str) -> bool:
    return SECRET not in text.lower()


def test_the_list_has_nested_settings() -> None:
    assert ("agents", "a", "headers") in SECRETS and ("keys", "a", "key") in SECRETS
    assert ("limits", "queue", "owner") in dict(SETTINGS)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_setting_shows_its_invalid_value(tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_SECRET", SECRET)
    file = tmp_path / "babelgate.yaml"
    refused: set[Steps] = set()
    for path, _ in SETTINGS:
        file.write_text(json.dumps(nested([path], SHAPES[shape])), encoding="utf-8")
        try:
            load(file)
        except ConfigError as error:
            refused.add(path)
            assert hidden(str(error)), (path, error)
    assert len(refused) > len(SETTINGS) / 2


KEYS = [
    {SECRET: "alice", "other": "alice"},
    {SECRET: ["alice"]},
    {SECRET: ""},
    {f"{SECRET}\n": "alice"},
]
"""Values of `keys` that swap an API key and its owner, an easy mistake of users."""
MEMBERS = [
    {SECRET: None},
    {SECRET * 30: ["alice"]},
    {f"alice:{SECRET}": "${NOT_SET}"},
    {"alice": f"{SECRET} {SECRET}é"},
    {"alice": SECRET, "bob": SECRET, "eve": None},
    {"alice": f"{SECRET}${{NOT_SET}}"},
]


@pytest.mark.parametrize(
    ("path", "members"),
    [*((("keys",), members) for members in KEYS), *((path, members) for path in SECRETS for members in MEMBERS)],
)
def test_a_name_that_may_be_a_secret_is_hidden(tmp_path: Path, path: Steps, members: dict[str, Any]) -> None:
    file = tmp_path / "babelgate.yaml"
    file.write_text(json.dumps({"port": "none", **nested([path], members)}), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert hidden(str(caught.value)), caught.value


@pytest.mark.parametrize(
    "text",
    [
        f"keys: {{alice: *{SECRET}}}",
        f"keys: {{alice: !{SECRET} x}}",
        f"keys: {{alice: !!{SECRET} x}}",
        f"keys: {{alice: !{SECRET}!x y}}",
        f"keys: {{alice: !it's{SECRET} y}}",
        f"keys: {{alice: &{SECRET} x, bob: &{SECRET} y, eve: [*{SECRET}, *x]}}",
        f"keys: {{alice: !!int {SECRET}}}",
        f"keys: {{alice: !!float {SECRET}}}",
        f"keys: {{alice: !!bool {SECRET}}}",
        f"keys: {{alice: !!timestamp {SECRET}}}",
        f"keys: {{alice: !!binary {SECRET}é}}",
        f"keys: {{alice: 2026-99-99, bob: {SECRET}}}",
        f"keys: {{alice: {'9' * 5000}, bob: {SECRET}}}",
        f"keys: {{{SECRET}: alice, {SECRET}: bob}}",
        f"keys:\n  {SECRET}: alice\n  {SECRET}: bob",
        f"keys: {{alice: '{SECRET}}}",
        f"keys: {{alice: %{SECRET}}}",
        f"keys: {{alice: @{SECRET}}}",
        f'keys: {{alice: "{SECRET}\\q"}}',
        f"keys:\n\talice: {SECRET}",
        f"keys:\n  alice:{SECRET}\n  bob: x",
        f"keys:\n  - {SECRET}\n  bob: x",
        f"keys: {{? [{SECRET}] : x}}",
        f"%{SECRET} x\n--- a",
        f"{SECRET}",
        f"- {SECRET}",
        f"keys: {'[' * 3000}{SECRET}",
        f'keys: {{alice: "{SECRET}\x07"}}',
    ],
)
def test_invalid_yaml_is_not_quoted(tmp_path: Path, text: str) -> None:
    file = tmp_path / "babelgate.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert problem.startswith(str(file))
    assert hidden(problem), problem


def deepest() -> list[Steps]:
    """Return the settings that hold no others."""
    paths = [path for path, _ in SETTINGS]
    return [path for path in paths if not any(other[: len(path)] == path and other != path for other in paths)]


@pytest.mark.parametrize("shape", ["a mapping to the empty", "a variable"])
def test_the_command_shows_no_secret_of_a_file(tmp_path: Path, shape: str) -> None:
    (tmp_path / "babelgate.yaml").write_text(json.dumps(nested(deepest(), SHAPES[shape])), encoding="utf-8")
    for command in ("validate", "serve"):
        done = babelgate(tmp_path, command, THE_SECRET=SECRET)
        assert done.returncode == 2, done
        assert hidden(done.stdout + done.stderr), done
        assert len(done.stderr.splitlines()) > 10
        assert all(line.startswith("babelgate: babelgate.yaml: ") for line in done.stderr.splitlines()), done.stderr


@pytest.mark.parametrize("shape", ["the secret", "JSON", "no JSON"])
def test_the_command_shows_no_secret_of_a_variable(tmp_path: Path, shape: str) -> None:
    name = {path: "BABELGATE_" + "__".join(path).upper() for path, _ in SETTINGS}
    if shape == "no JSON":
        for path in ("keys",), ("agents", "a", "headers"):
            done = babelgate(tmp_path, "serve", "--port", "0", **{name[path]: SHAPES[shape]})
            assert (done.returncode, hidden(done.stdout + done.stderr)) == (2, True), done
        return
    done = babelgate(tmp_path, "serve", **{name[path]: SHAPES[shape] for path in deepest() if path != ("keys",)})
    assert done.returncode == 2, done
    assert hidden(done.stdout + done.stderr), done


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", f"http://user:{SECRET}@127.0.0.1:1"),
        ("serve", f"a=http://user:{SECRET}@127.0.0.1:1"),
        ("serve", f"A~=http://user:{SECRET}@127.0.0.1:1"),
        ("serve", "--host", f"http://user:{SECRET}@127.0.0.1"),
        ("add", f"http://user:{SECRET}@127.0.0.1:1"),
        ("add", f"user:{SECRET}@127.0.0.1:1", "--header", BEARER),
        ("add", "http://127.0.0.1:1", "--header", BEARER),
        ("check", f"http://user:{SECRET}@127.0.0.1:1"),
        ("check", "http://127.0.0.1:1", "--header", BEARER),
        ("check", "http://127.0.0.1:1", "--header", f"X-Key: {SECRET}é"),
        ("bench", "smoke", f"http://user:{SECRET}@127.0.0.1:1"),
        ("run", "echo", "Hello", "--url", f"http://user:{SECRET}@127.0.0.1:1"),
        ("console", "--url", f"http://user:{SECRET}@127.0.0.1:1/?key={SECRET}"),
        ("console", "--url", f"user:{SECRET}@127.0.0.1:1"),
        ("run", "echo", "Hello", "--url", "http://127.0.0.1:1", "--key", f"{SECRET}é"),
    ],
    ids=" ".join,
)
def test_no_command_shows_a_secret_of_its_arguments(tmp_path: Path, arguments: Sequence[str]) -> None:
    done = babelgate(tmp_path, *arguments)
    assert done.returncode in (1, 2), done
    assert done.stderr.startswith("babelgate: ") and "Traceback" not in done.stderr
    assert hidden(done.stdout + done.stderr), done


def test_a_bench_of_a_misconfigured_agent_shows_no_secret(tmp_path: Path) -> None:
    agent = {"url": f"http://user:{SECRET}@127.0.0.1:1", "headers": {f"Authorization:{BEARER}": None}}
    (tmp_path / "babelgate.yaml").write_text(json.dumps({"agents": {"far": agent}}), encoding="utf-8")
    done = babelgate(tmp_path, "bench", "smoke", "far")
    assert done.returncode == 2, done
    assert [line.split(": ")[2] for line in done.stderr.splitlines()] == [
        "agents.far.url",
        "agents.far.headers, entry 1",
    ]
    assert hidden(done.stderr), done
