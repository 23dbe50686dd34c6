"""Compares the digests of all ranks of a user's program: data, masks, random numbers, parameters, gradients. Pure.

`records` reads what the ranks wrote; `group_roles` infers what groups serve for; each rule yields `DataDefect`; and
`analyze` separates causes from consequences.
"""
