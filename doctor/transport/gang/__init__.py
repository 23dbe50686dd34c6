"""The pods of one job as hosts: each runs doctor by itself, and carries out what the first of them sends it."""
