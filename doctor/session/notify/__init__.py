"""Tells a verdict to people and programs: a command, a webhook, e-mail. Never changes a verdict or an exit code."""
