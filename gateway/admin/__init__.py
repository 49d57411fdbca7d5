"""Administration API: keys, agents, the audit log and the configuration in force."""
