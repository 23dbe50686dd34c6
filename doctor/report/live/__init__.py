"""The live view of a run in the terminal: `--live`."""
