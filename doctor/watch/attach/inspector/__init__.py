"""The inspector: finds a job's ranks on a host and reads what each does. Python 3.6, standard library, ASCII.

It comes over stdin and is never written to disk. It reads /proc, the kernel's table of sockets, and, where py-spy is
installed, Python stacks without stopping the process. It sends a signal only where the request says so.
"""

MODULES = (
    "doctor.remote.runtime.signals",
    "doctor.remote.runtime.host_texts",
    "doctor.remote.runtime.netlink",
    "doctor.remote.runtime.streams",
    "doctor.remote.runtime.framing",
    "doctor.remote.runtime.readable_json",
    "doctor.remote.runtime.rank_variables",
    "doctor.remote.runtime.reading",
    "doctor.remote.runtime.rank_place",
    "doctor.remote.runtime.stack_frames",
    "doctor.remote.runtime.kernel_waits",
    "doctor.smoke.programs.agent.procfs",
    "doctor.smoke.programs.agent.kernel",
    "doctor.smoke.programs.agent.system_calls",
    "doctor.smoke.programs.agent.file_wait",
    "doctor.remote.runtime.connecting",
    "doctor.smoke.programs.agent.network",
    "doctor.watch.attach.inspector.live_environment",
    "doctor.watch.attach.inspector.connected",
    "doctor.watch.attach.inspector.python_stacks",
    "doctor.watch.attach.inspector.rank_state",
    "doctor.watch.attach.inspector.open_requests",
    "doctor.watch.attach.inspector.rank_finder",
    "doctor.watch.attach.inspector.awaited_processes",
    "doctor.watch.attach.inspector.spins",
    "doctor.watch.attach.inspector.native_calls",
    "doctor.watch.attach.inspector.recordings",
    "doctor.watch.attach.inspector.inspector",
)
"""In the order in which they are joined."""
