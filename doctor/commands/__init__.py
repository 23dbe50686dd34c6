"""The subcommands: wiring only. What one does is imported when it is called."""
