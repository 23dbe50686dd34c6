"""Runs one program on every host and brings back raw outputs."""
