"""The program of every rank of a smoke run: Python 3.8 and later, torch, torch_npu for NPUs, nothing of `doctor`.

The parts are ordinary modules that are sent to hosts as one text; `doctor.smoke.run.programs` joins them. On the host
all parts share one namespace, so a name is defined by one part alone, and imports of other parts are left out.

A rank emits what it observes in events, one line of JSON each; it draws no conclusions.
"""
