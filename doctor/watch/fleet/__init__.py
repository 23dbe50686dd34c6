"""A watched job over several hosts: one host leads and decides over all ranks, the others send it what they observe."""
