"""The sections "TLS" and "Secrets from files" of docs/security.md: their commands print what the page shows."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from babelgate.adapters.kit.client import tls
from babelgate.gateway.settings.model import Settings
from tests.docs.test_check import pattern
from tests.gateway.command import BOUND, PROGRAM, ROOT, Served, served
from tests.gateway.http.test_tls import reload

PAGE: Final = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
URL: Final = "https://localhost:8000"


def section(heading: str) -> str:
    """Return the section of a heading, up to the next heading."""
    _, _, rest = PAGE.partition(f"# {heading}\n")
    assert rest, heading
    return re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]


def blocks(heading: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", section(heading), re.MULTILINE | re.DOTALL)


def run(folder: Path, script: str) -> str:
    """Run a script in a shell with the commands of the page, and return its output."""
    functions = f'babelgate() {{ {" ".join(PROGRAM)} "$@"; }}\n{blocks("TLS", "sh")[0].splitlines()[0]}'
    command = f"{functions}\nexec 2>&1\n{script}"
    env = {name: value for name, value in {**os.environ, "PYTHONPATH": str(ROOT)}.items() if name != "SSL_CERT_FILE"}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=BOUND)
    return done.stdout


def check_examples(heading: str, folder: Path, gateway: Served | None = None) -> None:
    """Run the commands of a section one after the other, and compare their output with the page."""
    url = URL if gateway is None else gateway.url.replace("127.0.0.1", "localhost")
    (text,) = blocks(heading, "console")
    examples = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
    assert len(examples) >= 3
    for command, expected in examples:
        output = run(folder, command.replace(URL, url)).replace(url, URL).replace(str(folder), "PWD").strip()
        assert re.fullmatch(pattern(expected.strip()), output), f"{command}\n{output}"


def write(heading: str, folder: Path) -> None:
    text = blocks(heading, "yaml")[0].replace("PWD", str(folder))
    (folder / "babelgate.yaml").write_text(text)


@pytest.mark.timeout(180)
def test_the_examples_of_tls_match_the_page(tmp_path: Path) -> None:
    for heading in ("TLS", "Client certificates"):
        for script in dict.fromkeys((*blocks("TLS", "sh"), *blocks(heading, "sh"))):
            run(tmp_path, script)
        write(heading, tmp_path)
        with served(tmp_path) as gateway:
            check_examples(heading, tmp_path, gateway)
            if heading == "TLS":
                run(tmp_path, "openssl ecparam -name prime256v1 -genkey -noout -out server.key")
                (expected,) = blocks("Renew a certificate", "text")
                assert expected.strip() in reload(gateway)


def test_the_examples_of_secret_files_match_the_page(tmp_path: Path) -> None:
    for script in blocks("Secrets from files", "sh"):
        run(tmp_path, script)
    write("Secrets from files", tmp_path)
    check_examples("Secrets from files", tmp_path)


def test_the_settings_and_words_of_the_page_are_real() -> None:
    (agents,) = blocks("TLS to agents", "yaml")
    assert Settings.model_validate(yaml.safe_load(agents)).agents["planner"].tls is not None
    source = Path(str(tls.__file__)).read_text(encoding="utf-8")
    source += (ROOT / "gateway" / "agents" / "detection.py").read_text(encoding="utf-8")
    rows: list[Any] = re.findall(r"^\| `tls: (.*?)` \|", section("TLS to agents"), re.MULTILINE)
    assert len(rows) >= 6
    for row in rows:
        for part in re.split(r"URL|FILE|: set tls\.ca|a CA", row):
            assert part.strip() in source, row
