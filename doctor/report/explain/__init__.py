"""The pages that `doctor explain` shows."""
