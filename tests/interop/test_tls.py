"""Official clients call a gateway over https, with a certificate of a private CA."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.gateway.http.connection import protocol_options
from babelgate.gateway.http.tls import ServerTls
from tests.authority import Authority, serving_options
from tests.interop.driver import start_client
from tests.interop.test_access import CALLS
from tests.opened import opened
from tests.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

PEERS: Final[Mapping[str, tuple[str, str, Mapping[str, Any]]]] = {
    **CALLS,
    "aief": ("", "create_agent_task", {"task_request_body": {"input": "hi"}}),
    "mcp": ("/mcp", "call", {"name": "echo", "message": "hi"}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[tuple[str, Path]]:
    """Yield the URL of a gateway, and its CA."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    pair = authority.issue("server", "127.0.0.1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority.path))  # for clients that create their own HTTP client
        async with opened(folder, tls=pair._asdict()) as gateway:
            assert gateway.settings.tls is not None
            context = ServerTls(gateway.settings.tls).context
            options = protocol_options(gateway.settings)
            async with serving(gateway.app, **serving_options(context), **options) as plain_url:
                yield plain_url.replace("http:", "https:"), authority.path
                gateway.hub.close_readers()


@pytest.mark.parametrize("peer", PEERS)
async def test_an_official_client_calls_over_https(address: tuple[str, Path], peer: str) -> None:
    url, ca = address
    path, method, arguments = PEERS[peer]
    more = {"mode": "auto"} if peer == "mcp" else {}
    async with start_client(peer, base_url=f"{url}{path}", ca=str(ca), **more) as client:
        assert "hi" in str(await client.call(method, **arguments))
