"""Seeded attack campaigns: ``python -m tests.attack GROUP COUNT [--seed SEED]``."""
