"""Watches a training program of the user, as it is: its collectives, its steps and its loss.

`launch` runs a command with the hook in its environment; `hook` is what travels with it; `verdict` turns what the ranks
did into a failure of the smoke run's kinds, and `outcome` into a report.
"""
