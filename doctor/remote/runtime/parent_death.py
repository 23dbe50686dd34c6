"""Processes that end with their parent, however it ends."""

import os
import signal


def prctl(option, value):
    """Sets an attribute of this process; does nothing where Python or the kernel lacks the means."""
    try:
        import ctypes  # in here: it takes as long to load as all else together

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):  # then stdin's end is the only sign
        pass


def die_with_parent(parent):
    """Has the kernel kill this process when its parent ends; ends it at once if the parent has ended already."""
    prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(0)


def become_reaper():
    """Orphans of what this process started come to it, not to an init that a container may lack."""
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
