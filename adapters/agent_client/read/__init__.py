"""Messages of another agent of the protocol → canonical events."""
