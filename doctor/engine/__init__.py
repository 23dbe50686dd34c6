"""Facts, checks, results, and the evaluation of one by the other. Imports nothing of doctor outside this package."""
