"""Records as results of tools and contents of resources."""
