"""The agent: the one program of a smoke run that watches the ranks of a host. Standard library, Python 3.6, ASCII.

It comes over stdin and is never written to disk. It starts the job's interpreter with the worker's text, which becomes
the host's ranks, reads their flight recorders from outside, and reports to the controller in lines of JSON, each behind
a marker so that what a login shell prints is not taken for the agent's. It does not judge.

It ends all that it started: when ordered to, when stdin closes (the controller has gone), when nothing comes over it
any more (the network has gone), on a signal, and after its own time limit. If it is killed itself, the kernel kills the
worker, and the worker's end kills the ranks.
"""

MODULES = (
    "doctor.remote.runtime.signals",
    "doctor.remote.runtime.host_texts",
    "doctor.remote.runtime.netlink",
    "doctor.remote.runtime.processes",
    "doctor.remote.runtime.streams",
    "doctor.remote.runtime.framing",
    "doctor.remote.runtime.readable_json",
    "doctor.smoke.programs.recorder_page",
    "doctor.smoke.programs.cpu_quota",
    "doctor.remote.runtime.reading",
    "doctor.smoke.programs.agent.procfs",
    "doctor.remote.runtime.kernel_waits",
    "doctor.smoke.programs.agent.kernel",
    "doctor.smoke.programs.agent.system_calls",
    "doctor.smoke.programs.agent.file_wait",
    "doctor.remote.runtime.connecting",
    "doctor.smoke.programs.agent.network",
    "doctor.smoke.programs.agent.device_traffic",
    "doctor.smoke.programs.agent.pressure",
    "doctor.smoke.programs.agent.flight_recorder",
    "doctor.smoke.programs.agent.rank_monitor",
    "doctor.smoke.programs.agent.interpreter_monitor",
    "doctor.smoke.programs.agent.stacks",
    "doctor.smoke.programs.agent.cleanup",
    "doctor.smoke.programs.agent.interpreters",
    "doctor.remote.runtime.controller",
    "doctor.smoke.programs.agent.rank_watcher",
    "doctor.smoke.programs.agent.agent",
)
"""In the order in which they are joined."""
