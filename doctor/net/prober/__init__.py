"""The prober: the program of each host that tries the network. Standard library only, Python 3.6 and later, ASCII.

It comes over stdin and is never written to disk. It listens on the ports that the job will use, connects to those of
the other hosts, and reports what became of each attempt in lines of JSON, each behind a marker. It does not judge.

Both ends of a connection prove that they hold the run's random token (`handshake`): a stranger who connects learns
nothing and changes nothing, and an answer from another program is not taken for one of the right host.

It closes all its sockets and ends when ordered to, when stdin closes (the controller has gone), when no order has come
for `PATIENCE` seconds (the network has gone), on a signal, and after its own time limit. Its connections end with a
reset, so that none of the job's ports is left in TIME_WAIT.
"""
