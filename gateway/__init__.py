"""The gateway: the hub (journal, engine, log), agents in process, configuration, and the command line."""
