"""Administration API: HTTP handlers for API keys, agents, budgets, usage, the audit log and the configuration in
force."""
