"""Tools served by the official MCP SDK over stdin and stdout. A cancelled tool leaves the file `cancelled` in the
working directory."""

from pathlib import Path

from mcp_tools import hold, server

if __name__ == "__main__":
    hold.note_start = Path("started").touch
    hold.note_cancel = Path("cancelled").touch
    server.run()
