"""The programs that run on the hosts during a smoke run, sent as text."""

RANKS_ON_SINGLE_HOST = 4
"""Ranks on CPUs of a single host."""
