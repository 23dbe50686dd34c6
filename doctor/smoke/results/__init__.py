"""A finished smoke run as facts, findings and figures."""
