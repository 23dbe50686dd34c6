"""The inspector: finds a job's ranks on a host and reads what each does. Python 3.6, standard library, ASCII.

It comes over stdin and is never written to disk. It reads /proc, the kernel's table of sockets, and, where py-spy is
installed, Python stacks without stopping the process. It sends a signal only where the request says so.
"""
