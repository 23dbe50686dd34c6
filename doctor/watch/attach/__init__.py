"""A job that runs already, unchanged: its ranks, what each does, and which of them is odd."""
