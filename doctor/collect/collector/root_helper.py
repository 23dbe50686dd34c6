"""The helper that an administrator installs for `--sudo`: it runs a fixed list of probes as root, and nothing else.

It takes no argument, and from stdin one line of JSON: {"marker", "seconds", "probes": {name: digest}, "ports"}. It
never runs what comes from stdin: a name is looked up in the list that was installed.
"""

import json
import os
import sys
import time

from doctor.collect.collector.collector import Collector, print_record
from doctor.remote.runtime.signals import on_termination, wake_on_child_exit

REQUEST_LIMIT = 1 << 16
SECONDS_LIMIT = 300
PORTS_LIMIT = 4096
OTHER_VERSION = "the helper for sudo on this host is of another version of doctor: install it again"
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"


def help_as_root(installed):
    """Answers one request. `installed`: digest and fields by the name of a probe."""
    os.environ.clear()  # nothing of who calls it reaches a command that runs as root
    os.environ["PATH"] = SYSTEM_PATH
    os.umask(0o077)
    os.chdir("/")
    if len(sys.argv) != 1:
        sys.exit("expected no argument")
    try:
        marker, seconds, wanted_probes, ports = parse_request(read_line())
    except (ValueError, TypeError, KeyError, AttributeError):
        sys.exit("expected one line of JSON: marker, seconds, probes, ports")
    probes = {name: installed[name][1] for name in wanted_probes if installed.get(name, [0])[0] == wanted_probes[name]}
    fields = {"marker": marker, "seconds": seconds, "given": {"ports": ports}}
    began, child_exits = time.time(), wake_on_child_exit()
    collector = Collector(b"", dict(fields, parts=[{"prefix": [], "probes": probes}]), child_exits)
    on_termination(collector.quit)
    collector.plan()
    collector.run()
    for name in wanted_probes:
        if name not in probes:
            collector.outputs[name] = {"": {"ended": "error", "err": OTHER_VERSION}}
    print_record(marker, collector.outputs, began)
    os._exit(0)


def read_line():
    """The first line of stdin. Raises: ValueError where it is too long or does not end."""
    data = b""
    while not data.endswith(b"\n"):
        piece = os.read(0, 1)
        data += piece
        if not piece or len(data) > REQUEST_LIMIT:
            raise ValueError("no line")
    return data


def parse_request(line):
    """Marker, seconds, probes and ports. Raises: ValueError, TypeError, KeyError, AttributeError."""
    request = json.loads(line.decode("ascii"))
    marker, seconds, probes, ports = (request[key] for key in ("marker", "seconds", "probes", "ports"))
    if not (isinstance(marker, str) and marker.replace("-", "").isalnum() and len(marker) <= 64):
        raise ValueError("marker")
    if not all(isinstance(port, int) and 0 < port < 65536 for port in ports) or len(ports) > PORTS_LIMIT:
        raise ValueError("ports")
    if not all(isinstance(digest, str) for digest in probes.values()):
        raise ValueError("probes")
    return marker, min(max(float(seconds), 1), SECONDS_LIMIT), probes, ports
