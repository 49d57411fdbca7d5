"""Tools served by the official MCP SDK over streamable HTTP."""

import asyncio

from mcp_tools import hold, server
from serving import Gate, listen, serve


async def main() -> None:
    gate = Gate()
    hold.wait = gate.wait
    await serve(server.streamable_http_app(), listen(), gate)


if __name__ == "__main__":
    asyncio.run(main())
