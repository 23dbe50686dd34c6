"""A test that uses devices runs only while no pod on its node has any, and ends when one comes."""

from __future__ import annotations

import os
import signal
import threading
import time

from doctor.engine.errors import CommandError
from doctor.engine.exit_code import Exit
from doctor.engine.texts import filled
from doctor.session.output_files import print_warning
from doctor.transport import TransportError
from doctor.transport.kubernetes.api_server import ApiServer
from doctor.transport.kubernetes.idle import pod_with_devices

_INTERVAL = 2.0
"""Seconds; a kubelet takes as long to start the first container of a pod."""
_PATIENCE = 10.0


def run_only_when_idle(node: str) -> None:
    """Returns where the node is idle, and from then on ends this process by SIGTERM once it is not, or not known.

    Raises: CommandError, where it is busy, or that is not known.
    """
    if problem := _problem(node):
        raise CommandError(problem, Exit.NOTHING)
    threading.Thread(target=_watch, args=(node,), daemon=True).start()


def _watch(node: str) -> None:
    while not (problem := _problem(node)):
        time.sleep(_INTERVAL)
    print_warning(problem)
    os.kill(os.getpid(), signal.SIGTERM)


def _problem(node: str) -> str:
    """Why nothing may be tested; empty where something may."""
    try:
        pod = pod_with_devices(ApiServer(_PATIENCE), node)
    except TransportError as error:
        return filled("--when-idle {0}: nothing is tested: {1}", node, error.text)
    return filled("--when-idle {0}: nothing is tested beside the pod {1}", node, pod) if pod else ""
