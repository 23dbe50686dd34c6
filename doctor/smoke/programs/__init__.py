"""The programs that run on the hosts during a smoke run, sent as text."""
