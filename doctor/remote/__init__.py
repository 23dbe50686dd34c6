"""Programs that are sent to hosts as text: how they are joined, started, and read.

`bootstrap` joins a program's modules and starts it by an interpreter of the host, `request` is the controller's side of
the exchange, and `runtime` holds the modules that several programs have in common.
"""
