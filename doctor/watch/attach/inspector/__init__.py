"""The inspector: finds a job's ranks on a host and reads what each does. Python 3.6, standard library, ASCII.

It comes over stdin and is never written to disk. It reads /proc, the kernel's table of sockets, and, where py-spy is
installed, Python stacks without stopping the process. It sends a signal only where the request says so.
"""

MODULES = tuple(
    f"doctor.{package}.{name}"
    for package, names in (
        ("remote.runtime", ("signals", "host_texts", "netlink", "streams", "framing", "readable_json", "reading",
            "rank_place", "stack_frames")),
        ("smoke.programs.agent", ("procfs", "kernel")),
        ("remote.runtime", ("connecting",)),
        ("smoke.programs.agent", ("network",)),
        ("watch.attach.inspector", ("live_environment", "connected", "rank_state", "open_requests", "rank_finder",
            "file_wait")),
        ("watch.attach.inspector", ("awaited_processes", "spins", "native_calls", "python_stacks", "recordings",
            "inspector")),
    )
    for name in names
)  # fmt: skip
"""In the order in which they are joined."""
