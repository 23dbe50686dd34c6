"""One module for each report format, and their registry."""
