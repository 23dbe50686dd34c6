"""The command line: one module for each command. Nothing below imports it."""
