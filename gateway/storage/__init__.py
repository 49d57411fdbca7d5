"""Storage: the tables, the journal that writes them, live delivery of committed records, and reads."""
