"""The agent: the one program of a smoke run that watches the ranks of a host. Standard library, Python 3.6, ASCII.

It comes over stdin and is never written to disk. It starts the job's interpreter with the worker's text, which becomes
the host's ranks, reads their flight recorders from outside, and reports to the controller in lines of JSON, each behind
a marker so that what a login shell prints is not taken for the agent's. It does not judge.

It ends all that it started: when ordered to, when stdin closes (the controller has gone), when nothing comes over it
any more (the network has gone), on a signal, and after its own time limit. If it is killed itself, the kernel kills the
worker, and the worker's end kills the ranks.
"""
