"""Conversion of records to chunks of a UI message stream, and of chunks to the messages of a page."""
