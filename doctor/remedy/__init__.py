"""Playbooks: files, templates, and which findings they fix."""
