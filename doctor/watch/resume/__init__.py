"""Whether a training goes on where its checkpoint was saved: marks of both are kept, and compared."""
