"""What a thread ran, and waited for a CPU."""


def thread_schedule(folder):
    """(nanoseconds that a thread ran, that it waited for a CPU, turns) so far; None where the kernel counts none.

    `folder`: /proc/PID/task/TID or /proc/thread-self. The kernel adds a wait when it ends. Source: Linux,
    ``Documentation/scheduler/sched-stats.rst``, "/proc/<pid>/schedstat".
    """
    try:
        with open(folder + "/schedstat", "rb") as file:
            fields = file.read(256).split()
    except OSError:
        return None
    return tuple(map(int, fields[:3])) if len(fields) > 2 else None
