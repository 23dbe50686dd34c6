"""Stragglers and slow links."""
