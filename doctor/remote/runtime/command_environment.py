"""The environment of commands on a host."""

import os

TOOL_DIRECTORIES = (
    "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin",
    "/usr/local/Ascend/driver/tools", "/usr/local/dcmi",
)  # fmt: skip
DRIVER_LIBRARIES = "/usr/local/Ascend/driver/lib64"


def tool_environment():
    """Our own environment with the tools' directories in PATH and the driver's libraries, if the host has them.

    A login shell that runs one command often has a short PATH. Behind sudo the system's folders come first: the
    PATH may be that of the login user, and root runs no tool of that user's before the system's own.
    """
    environ = dict(os.environ, LC_ALL="C")
    path = [folder for folder in environ.get("PATH", "").split(":") if folder.startswith("/")]
    if os.geteuid() == 0 and environ.get("SUDO_UID", "0") != "0":
        path = list(TOOL_DIRECTORIES) + [folder for folder in path if folder not in TOOL_DIRECTORIES]
    environ["PATH"] = ":".join(path + [folder for folder in TOOL_DIRECTORIES if folder not in path])
    if os.path.isdir(DRIVER_LIBRARIES):
        parts = [environ.get("LD_LIBRARY_PATH", ""), DRIVER_LIBRARIES]
        parts += [DRIVER_LIBRARIES + "/driver", DRIVER_LIBRARIES + "/common"]
        environ["LD_LIBRARY_PATH"] = ":".join(part for part in parts if part)
    return environ
