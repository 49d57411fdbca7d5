"""Writers that convert records of runs to answers for callers."""
