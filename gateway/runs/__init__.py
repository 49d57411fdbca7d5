"""Submission, execution and end of runs, and the work on data that remains: expiry of threads, webhooks, deletion."""
