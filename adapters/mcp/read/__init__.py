"""Messages of another MCP server as canonical events."""
