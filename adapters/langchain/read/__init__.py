"""What another server says → canonical events."""
