"""Compares what the ranks computed: values, losses, gradients, random numbers."""
