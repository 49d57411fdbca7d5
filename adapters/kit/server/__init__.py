"""What the servers of all protocols share."""
