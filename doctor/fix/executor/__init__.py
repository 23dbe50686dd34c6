"""The executor of `doctor fix` on a host. Standard library only, Python 3.6 and later, ASCII.

It comes over stdin, is never written to disk, and does one request a line, in order: {"op": ..., ...}. Every answer is
one line of JSON behind a marker. It knows nothing of playbooks: the controller decides, writes down how to undo a
step, and only then asks for it. When stdin ends the executor ends too, but first completes what it has begun: a step
that was interrupted midway is worse than one that was made.
"""
