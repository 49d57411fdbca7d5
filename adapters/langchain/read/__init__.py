"""Messages and streams of an upstream server → canonical events."""
