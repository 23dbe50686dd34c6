"""The carrier: the program that a launcher starts once on each host.

Standard library only, Python 3.6 and later, ASCII. It reads orders, one a line, from a stdin that all hosts share:
``* [...]`` is for all, ``3 [...]`` for task 3, where the launcher numbers the tasks. It starts commands by sh, each in
a session of its own, and sends what they print in frames that no launcher can break: base64 with a number and a
checksum, wherever lines are cut or joined. When stdin ends, or a signal asks it to, it ends all that it started.
"""
