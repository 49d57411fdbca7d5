"""What the clients of all protocols share."""
