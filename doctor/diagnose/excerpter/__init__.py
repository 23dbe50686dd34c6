"""The excerpter: reads logs on a host, and sends the lines that a diagnosis needs. Python 3.6, standard library, ASCII.

It comes over stdin and is never written to disk. It reads regular files alone, newest first, each up to the size that
it had when it was opened, and prints one line for each file as soon as it is read, and one at the end. A line of a
log is sent where it contains the literal of a signature, ends a Python traceback, shows the time of such a line, or
stands among the first or last of its file.
"""
