"""Reads the logs of a finished job, and names the rank, the cause and the fix."""
