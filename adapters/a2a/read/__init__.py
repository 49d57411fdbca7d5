"""What another A2A server says → canonical events."""
