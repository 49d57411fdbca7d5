"""What both revisions ask of an agent, in any binding: the probes are those of 1.0 and of 0.3."""
