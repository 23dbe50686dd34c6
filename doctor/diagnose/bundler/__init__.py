"""The bundler: collects what a vendor's support asks for on a host. Python 3.6, standard library, ASCII.

It comes over stdin. It runs the commands of a request one after another, each with a limit of time, reads regular
files, each up to the size that it had when it was opened, and sends all of it as text: a compressed log is sent
inflated, and what is no text is left out, so that the controller can take secrets out. A support tool that writes files
writes them into a new folder of its own, which is removed.
"""
