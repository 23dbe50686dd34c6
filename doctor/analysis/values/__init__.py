"""Values that the ranks of a group must have alike, different, or as a mean: one judge for smoke and watch. Pure.

A source brings evidence (rank, step, name, digest). `splits` compares it, `cause_order` says which check reports what,
and tells causes from consequences, `defect` is what a rule finds.
"""
