"""What is kept: tables, the one writer, what follows it live, and what is read back."""
