"""The executor of `doctor fix` on a host. Standard library only, Python 3.6 and later, ASCII.

It comes over stdin, is never written to disk, and does one request a line, in order: {"op": ..., ...}. Every answer is
one line of JSON behind a marker. It knows nothing of playbooks: the controller decides, writes down how to undo a
step, and only then asks for it. When stdin ends the executor ends too, but first completes what it has begun: a step
that was interrupted midway is worse than one that was made.
"""

MODULES = (
    "doctor.remote.runtime.signals",
    "doctor.remote.runtime.host_texts",
    "doctor.remote.runtime.processes",
    "doctor.remote.runtime.command_environment",
    "doctor.remote.runtime.streams",
    "doctor.remote.runtime.framing",
    "doctor.fix.executor.file_state",
    "doctor.fix.executor.file_changes",
    "doctor.fix.executor.kept_states",
    "doctor.fix.executor.step_commands",
    "doctor.fix.executor.executor",
)
"""In the order in which they are joined."""
