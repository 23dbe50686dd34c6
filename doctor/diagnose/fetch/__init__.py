"""Logs of other hosts: asked for, kept in a file, and read like files that lie here."""
