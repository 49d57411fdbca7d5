"""Commands of docs/identity.md print what the page shows, and its settings and error texts are real."""

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from babelgate.gateway.settings.model import Settings
from tests.docs.test_authentication import check_examples, section, settings_of, write
from tests.gateway.command import ROOT, served
from tests.interop.driver import start_server

PAGE: Final = (ROOT / "docs" / "identity.md").read_text(encoding="utf-8")
GATEWAY, PLANNER, PROVIDER = "http://127.0.0.1:8000", "http://127.0.0.1:8001", "http://127.0.0.1:9000"


@pytest.mark.timeout(180)
async def test_examples_of_the_gateways_token_match_the_page(tmp_path: Path) -> None:
    heading = "A token of the gateway"
    oauth = settings_of(heading, "# idp/settings.yaml", PAGE)["oauth"]
    assert oauth.pop("issuer") == PROVIDER
    planner = settings_of(heading, "# planner/babelgate.yaml", PAGE)
    assert planner.pop("port") == 8001
    front = yaml.safe_dump(settings_of(heading, "# babelgate.yaml", PAGE))
    async with start_server("nanoidp", **oauth) as provider:
        planner["issuers"]["corp"]["issuer"] = provider.url
        for name in ("planner", "front"):
            (tmp_path / name).mkdir()
        write(tmp_path / "planner", planner)
        with served(tmp_path / "planner") as server:
            text = front.replace(f"{PLANNER}/a2a", f"{server.url}/a2a").replace(PROVIDER, provider.url)
            write(tmp_path / "front", yaml.safe_load(text))
            with served(tmp_path / "front") as gateway:
                urls = {GATEWAY: gateway.url, PLANNER: server.url}
                check_examples(heading, tmp_path, urls, PAGE)


@pytest.mark.parametrize("heading", ["A token of the caller", "Authorization by the user"])
def test_the_settings_of_the_page_are_valid(heading: str) -> None:
    Settings.model_validate(settings_of(heading, "# babelgate.yaml", PAGE))


def test_the_errors_of_the_page_are_in_the_code() -> None:
    code = "".join(
        (ROOT / "gateway" / name).read_text("utf-8") for name in ("agents/tokens/source.py", "runs/consents.py")
    )
    messages = re.findall(r"^\| `([^`]+)` \|", section("What errors say", PAGE), re.MULTILINE)
    assert len(messages) == 5
    for message in messages:
        for words in message.removesuffix("invalid_target").split("planner"):
            assert words.strip(" .:") in code, message
