"""The loss of a training as its logs tell it: lines, curves, verdicts."""
