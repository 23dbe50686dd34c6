"""What the operating system refused a rank, where the error's own text does not say it."""

from __future__ import annotations

import dis
import errno
import fcntl
import os
import resource
import signal
import socket
from types import TracebackType

from doctor.remote.runtime.host_texts import filled

REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)
NAMED_BY = (os, fcntl, socket, signal, resource)
"""Modules whose functions are calls of the kernel."""


def explained(error: BaseException) -> str:
    """The error's text, with the call that was refused, and with the limit of open files where that is reached."""
    text = str(error).strip()
    if isinstance(error, OSError) and error.errno in REFUSED and not error.filename:
        call = refused_call(error.__traceback__)
        text = filled("{0} ({1} was refused: a seccomp profile or a missing capability?)", text, call) if call else text
    if "Too many open files" not in text and files_are_used_up():
        first = text.splitlines()[0] if text else type(error).__name__
        text = filled("{0} (Errno 24: Too many open files)", first)
    return text


def refused_call(trace: TracebackType | None) -> str:
    """The function of the kernel's modules that the innermost frame called last; empty where it called none."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    call = ""
    for step in dis.get_instructions(trace.tb_frame.f_code) if trace is not None else ():
        if trace is not None and step.offset > trace.tb_lasti:
            break
        name = step.argval if step.opname.startswith("LOAD_") else None
        if isinstance(name, str) and any(callable(getattr(module, name, None)) for module in NAMED_BY):
            call = name
    return call


def files_are_used_up() -> bool:
    """Whether this process has as many files open as it may have, or all but two: the error may have closed some."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        return len(os.listdir("/proc/self/fd")) + 1 >= limit
    except OSError as error:
        return error.errno == errno.EMFILE
