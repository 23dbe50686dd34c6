"""A rehearsal: the user's own launch line with a stub in place of the training program."""
