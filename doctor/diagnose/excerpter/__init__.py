"""The excerpter: reads logs on a host, and sends the lines that a diagnosis needs. Python 3.6, standard library, ASCII.

It comes over stdin and is never written to disk. It reads regular files alone, newest first, each up to the size that
it had when it was opened, and prints one line for each file as soon as it is read, and one at the end. A line of a
log is sent where it contains the literal of a signature, ends a Python traceback, shows the time of such a line, or
stands among the first or last of its file.
"""

MODULES = (
    "doctor.remote.runtime.signals",
    "doctor.remote.runtime.host_texts",
    "doctor.remote.runtime.streams",
    "doctor.remote.runtime.framing",
    "doctor.remote.runtime.stack_frames",
    "doctor.diagnose.excerpter.line_choice",
    "doctor.diagnose.excerpter.tracebacks",
    "doctor.diagnose.excerpter.log_search",
    "doctor.diagnose.excerpter.kernel_messages",
    "doctor.diagnose.excerpter.file_blocks",
    "doctor.diagnose.excerpter.excerpt",
    "doctor.diagnose.excerpter.excerpter",
)
"""In the order in which they are joined."""
