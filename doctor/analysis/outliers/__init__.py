"""Which hosts, ranks, devices or links are slower than others that are alike. Pure.

`pairs` compares what two of them do together, `peers` what each does alone. Both compare logarithms with the middle of
the others. A member is named only if its quickest work is slow as well, and never by one moment alone: what looks slow
is measured again, and is slow only if each time shows at least half of it. No table says how fast anything should be.
"""

FALSE_ALARM_RATE = 0.001
"""The chance at most that a fleet in which nothing is slow is accused of anything."""
