"""Which rank stopped a smoke run, and why."""
