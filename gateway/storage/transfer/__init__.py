"""Export and import of threads with all their data, as a file for any database (`docs/export.md`)."""
