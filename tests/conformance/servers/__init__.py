"""One scripted server for each set: it keeps every requirement, and breaks one on demand. See `kit`."""
