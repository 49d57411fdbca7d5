"""Commands of docs/authentication.md print what the page shows, and its settings and error texts are real."""

import hashlib
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from babelgate.gateway.api_key import make_key
from babelgate.gateway.settings.model import Settings
from tests.docs.test_check import pattern
from tests.gateway.command import BOUND, PROGRAM, ROOT, served
from tests.interop.driver import start_server

PAGE: Final = (ROOT / "docs" / "authentication.md").read_text(encoding="utf-8")
GATEWAY, PROVIDER = "http://127.0.0.1:8000", "http://127.0.0.1:9000"
KEYS: Final = {"CI_KEY": make_key(), "NEW_CI_KEY": make_key()}


def section(heading: str, page: str = PAGE) -> str:
    """Return the section of a heading, up to the next heading."""
    _, _, rest = page.partition(f"# {heading}\n")
    assert rest, heading
    return re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]


def settings_of(heading: str, name: str = "", page: str = PAGE) -> dict[str, Any]:
    """Return the values of the first YAML block that contains `name`, in the section of the page with this heading."""
    for block in re.findall(r"^ *```yaml\n(.*?)^ *```$", section(heading, page), re.MULTILINE | re.DOTALL):
        if name in block:
            text = block.replace("sha256:9c02…", digest("CI_KEY")).replace("sha256:5f1e…", digest("NEW_CI_KEY"))
            return yaml.safe_load(text)
    raise AssertionError(f"{heading} has no {name}")


def digest(key: str) -> str:
    return f"sha256:{hashlib.sha256(KEYS[key].encode()).hexdigest()}"


def check_examples(heading: str, folder: Path, urls: Mapping[str, str], page: str = PAGE) -> None:
    """Run the commands of a section in one shell, and compare their outputs with the page. `urls` maps the URLs on the
    page to the actual ones."""
    check_commands(section(heading, page), folder, urls, KEYS)


def check_commands(page_text: str, folder: Path, urls: Mapping[str, str], variables: Mapping[str, str]) -> None:
    """Run the commands in a part of a page in one shell, and compare their outputs with it. `urls` maps the URLs on the
    page to the actual ones."""
    script, expected = ["exec 2>&1"], list[str]()
    for block in re.findall(r"^```console\n(.*?)^```$", page_text, re.MULTILINE | re.DOTALL):
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            script += [re.sub(r"^babelgate\b", " ".join(PROGRAM), command), "echo; echo ----"]
            expected.append(output.strip())
    text = "\n".join(script)
    for page_url, actual_url in urls.items():
        text = text.replace(page_url, actual_url)
    env = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, timeout=BOUND, check=True, cwd=folder, env=env
    )
    output = done.stdout
    for page_url, actual_url in urls.items():
        output = output.replace(actual_url, page_url)
    actual_outputs = [each.strip() for each in output.split("----\n")[:-1]]
    assert len(actual_outputs) == len(expected) > 0
    for wanted, found in zip(expected, actual_outputs, strict=True):
        assert re.fullmatch(pattern(wanted), found), f"{wanted}\n{found}"


def write(folder: Path, settings: dict[str, Any]) -> None:
    (folder / "babelgate.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")


@pytest.mark.timeout(180)
def test_examples_of_api_keys_match_the_page(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text("keys: {ci: {hash: 'sha256:9c02'}}\n", encoding="utf-8")
    before = settings_of("API keys", "# babelgate.yaml")
    write(tmp_path, before)
    with served(tmp_path) as gateway:
        check_examples("API keys", tmp_path, {GATEWAY: gateway.url})
    write(tmp_path, {**before, **settings_of("Rotate a key")})
    with served(tmp_path) as gateway:
        check_examples("Rotate a key", tmp_path, {GATEWAY: gateway.url})


@pytest.mark.timeout(180)
async def test_examples_of_tokens_match_the_page(tmp_path: Path) -> None:
    heading = "Tokens of an identity provider"
    oauth = settings_of(heading, "# idp/settings.yaml")["oauth"]
    users = settings_of(heading, "# idp/users.yaml")["users"]
    assert oauth.pop("issuer") == PROVIDER
    settings = settings_of(heading, "# babelgate.yaml")
    assert settings.pop("public_url") == GATEWAY  # the test's gateway has another port
    async with start_server("nanoidp", users=users, **oauth) as provider:
        settings["issuers"]["corp"]["issuer"] = provider.url
        write(tmp_path, settings)
        with served(tmp_path) as gateway:
            urls = {GATEWAY: gateway.url, PROVIDER: provider.url}
            for each in (heading, "Log in with MCP", "A2A agent cards"):
                check_examples(each, tmp_path, urls)


def test_the_forms_of_keys_are_valid() -> None:
    forms = re.findall(r"^\|.*\| `(.*)` \|$", section("API keys"), re.MULTILINE)
    assert len(forms) == 3
    digests = iter(f"sha256:{number:064x}" for number in range(9))
    for form in forms:
        value = re.sub("sha256:…", lambda _: next(digests), form)
        Settings.model_validate({"keys": {"ci": yaml.safe_load(value)}})


def test_the_errors_of_the_page_are_in_the_code() -> None:
    code = "".join((ROOT / "gateway" / "http" / f"{name}.py").read_text("utf-8") for name in ("tokens", "verifier"))
    code += (ROOT / "gateway" / "access" / "rules.py").read_text("utf-8")
    rows = re.findall(r"^\| (`.*`).* \| .* \|$", section("What errors say"), re.MULTILINE)
    messages = re.findall("`([^`]+)`", " ".join(rows))
    assert len(messages) >= 12
    for message in messages:
        reason = message.removeprefix("The token is not accepted: ").partition("…")[0].rstrip(". ")
        reason = re.sub(r"corp .*|.* may not run echo: ", "", reason)
        assert reason in code, message
