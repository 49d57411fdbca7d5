"""Export and import: threads with all that belongs to them, as a file that any database takes in (`docs/export.md`)."""
