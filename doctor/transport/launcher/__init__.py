"""Slurm and MPI as transports: one job step reaches all hosts."""
