"""Facts: what is read from each host, and the commands and functions that read it."""
