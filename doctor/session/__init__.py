"""What every command that evaluates hosts shares: examine, apply policy, write output, exit code."""
