"""Writers that convert the records of a run to completions and responses for callers."""
