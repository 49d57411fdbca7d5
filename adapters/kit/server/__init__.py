"""Code that the servers of all protocols share."""
