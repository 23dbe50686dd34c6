"""Collective calls side by side: who is behind, who differs, who waits for whom, who is silent, who died first."""
