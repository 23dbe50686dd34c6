"""Nodes as hosts: a privileged pod on each, through which the node's own namespaces are entered, only when asked for.

A watchdog, a process of its own, removes the pods when this process closes the pipe to it, or dies for any reason; a
pod that outlives the watchdog, too, ends after `_LIFETIME` seconds.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import threading
import time

from doctor.engine.texts import filled
from doctor.hosts.selection import PodAccess
from doctor.transport import TransportError, format_seconds, transport_error
from doctor.transport.kubernetes import kubectl
from doctor.transport.kubernetes.pods import read_pod
from doctor.transport.options import CONNECT_TIMEOUT

_LIFETIME = 3600
_READY_SECONDS = 60.0
_REMOVE_SECONDS = 30.0
_POLL_SECONDS = 0.5
LABEL = "cluster-doctor.dev/run"
_WATCHDOG = 'cat >/dev/null; n=0; until "$@" >/dev/null 2>&1 || [ $n -ge 20 ]; do n=$((n + 1)); sleep 1; done'
"""Waits for the end of its stdin. The API server may be gone for a while."""


class NodePods:
    """The pods of one run; made with the first command for a node."""

    within = ("nsenter", "-t", "1", "-m", "-u", "-i", "-n", "-p", "--")
    """The words that enter the node from its pod."""

    def __init__(self, access: PodAccess, nodes: tuple[str, ...]) -> None:
        self._access, self._nodes = access, nodes
        self._run = secrets.token_hex(4)
        self._names = {node: f"doctor-{self._run}-{number}" for number, node in enumerate(nodes)}
        self._lock = threading.Lock()
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._problem: TransportError | None = None
        self._ready: set[str] = set()

    def pod(self, node: str) -> str:
        """The name of a node's pod, once it runs. Raises: TransportError."""
        with self._lock:
            if self._watchdog is None and self._problem is None:
                # what keeps it from making pods is every node's problem
                try:
                    self._create_with_watchdog()
                except OSError as error:  # of sh or kubectl: no more processes, or it is gone
                    text = filled("no pod could be made on it: {0}", error.strerror or str(error))
                    self._problem = transport_error("error", text)
            if self._problem:
                raise self._problem
        name = self._names[node]
        if node not in self._ready:
            self._await(node, name)
            self._ready.add(node)
        return name

    def remove(self) -> None:
        """Has the watchdog remove all pods, and waits for it."""
        with self._lock:
            watchdog = self._watchdog
        if watchdog and watchdog.stdin:
            watchdog.stdin.close()
            try:
                watchdog.wait(_REMOVE_SECONDS)
            except subprocess.TimeoutExpired:
                return  # it goes on trying without us

    def _create_with_watchdog(self) -> None:
        """The watchdog first: no pod is ever without one. Raises: OSError."""
        access = self._access
        where = (*access.kubectl, f"--namespace={access.namespace}")
        if self._may_not_delete(where):
            why = filled("the API server forbids this user to {0}", 'delete resource "pods"')
            self._problem = transport_error("auth", why, "kubectl auth can-i delete pods")
            return
        options = ("--wait=false", "--grace-period=0", "--ignore-not-found")
        remove = (*where, "delete", "pods", *self._names.values(), *options)  # by name: that needs no right to list
        self._watchdog = subprocess.Popen(
            ["sh", "-c", _WATCHDOG, "sh", *remove],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        items = [self._manifest(node, name) for node, name in self._names.items()]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
        try:
            kubectl.while_absent(lambda: self._create_once(where, text), CONNECT_TIMEOUT)
        except TransportError as error:
            self._problem = error

    @staticmethod
    def _create_once(where: tuple[str, ...], text: bytes) -> None:
        """Pods of these names are this run's: what exists was made by an attempt whose answer did not come.

        Raises: TransportError, OSError.
        """
        try:
            done = subprocess.run(
                [*where, "create", "-f", "-"],
                input=text,
                capture_output=True,
                timeout=_READY_SECONDS,
                env=kubectl.english_environ(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            limit = format_seconds(_READY_SECONDS)
            raise transport_error("timeout", filled("no pod could be made on it within {0}", limit)) from None
        exists = b"(AlreadyExists)"
        rest = b"".join(line for line in done.stderr.splitlines(keepends=True) if exists not in line)
        if done.returncode and (exists not in done.stderr or b"rror" in rest):
            raise kubectl.complaint(rest)

    @staticmethod
    def _may_not_delete(where: tuple[str, ...]) -> bool:
        """Whether the pods would stay. An API server that does not say so has not forbidden it."""
        argv = (*where, "auth", "can-i", "delete", "pods")
        try:
            done = subprocess.run(
                argv, capture_output=True, timeout=_REMOVE_SECONDS, env=kubectl.english_environ(), check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 1 and done.stdout.strip().startswith(b"no")

    def _manifest(self, node: str, name: str) -> dict[str, object]:
        container = {
            "name": "doctor",
            "image": self._access.node_image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sleep", str(_LIFETIME)],
            "securityContext": {"privileged": True, "runAsUser": 0},
        }
        labels = {"app.kubernetes.io/managed-by": "cluster-doctor", LABEL: self._run}
        spec = {
            "nodeName": node,
            "hostPID": True,
            "hostNetwork": True,
            "hostIPC": True,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _LIFETIME,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}

    def _await(self, node: str, name: str) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            pod = read_pod(self._access.kubectl, self._access.namespace, name)
            why = pod.why_unready("doctor")
            if not why:
                return
            if pod.ended or time.monotonic() > deadline:
                raise transport_error("error", filled("the pod on it does not run: {0}", why))
            time.sleep(_POLL_SECONDS)
