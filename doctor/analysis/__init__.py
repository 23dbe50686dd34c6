"""What evidence of any source means: pure analyses that all commands share."""
