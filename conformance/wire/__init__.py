"""HTTP client of the checks. It records every exchange and validates every message against its schema."""
