"""HTTP as it is on the wire: every exchange is kept, every message is held against its schema."""
