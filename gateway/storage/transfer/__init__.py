"""Export of threads with all their data to a file, and import into any database (`docs/export.md`)."""
