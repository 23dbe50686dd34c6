"""Writes rank tables: built from live hosts, or an existing one reduced to some of its hosts."""
