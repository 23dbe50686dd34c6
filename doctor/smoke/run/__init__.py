"""Supervises a smoke run: plan, agents, events, verdict."""
