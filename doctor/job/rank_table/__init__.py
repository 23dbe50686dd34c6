"""Rank tables: strict reading into values."""
