"""One ``kubectl exec`` for each command: no port, no key and no daemon beside what Kubernetes has.

A node is entered through a privileged pod that is made on it.

The command in the container reports its start on stderr before anything else: this separates what failed before it (API
server, kubelet, container runtime) from what failed in it. It reports an end with 0, too, since that is
how kubectl exits where the API server is gone in the middle. When kubectl ends, the container's end of
stdin closes, and by that every program of doctor ends itself.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import threading
import time

from doctor.engine.quantities import seconds_text
from doctor.engine.texts import filled
from doctor.hosts.selection import PodAccess
from doctor.transport import CommandResult, RemoteSession, TransportError, transport_error
from doctor.transport.conversation import MAX_KEPT_STDERR, LineSession
from doctor.transport.kubernetes import kubectl
from doctor.transport.kubernetes.pods import read_pod
from doctor.transport.local import Children, PipeChannel, run_command
from doctor.transport.options import CONNECT_TIMEOUT, MAX_OUTPUT

_STARTED, _ENDED = b"doctor-in-container\n", b"doctor-command-ended\n"
_MOST_AT_ONCE = 32
"""Commands of kubectl that are run to their end at the same time: each takes some 50 MB here."""


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
            limit = seconds_text(_READY_SECONDS)
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


class Kubernetes:
    """`doctor.transport.Transport` by kubectl."""

    def __init__(
        self, access: PodAccess, hosts: tuple[str, ...], patience: float | None = None, limit: int = MAX_OUTPUT
    ) -> None:
        self.warnings: list[str] = []
        self.reached = dict(access.addresses)
        """The address of each pod in the network of the pods."""
        self._access, self._patience, self._limit = access, patience or CONNECT_TIMEOUT, limit
        self._children = Children()
        self._slots = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._nodes = NodePods(access, hosts) if access.node_image else None

    def run(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        """See `doctor.transport.Transport.run`.

        An API server that is gone is tried again for as long as it may take to connect.
        """
        return kubectl.while_absent(
            lambda: self._run_once(host, command, stdin, timeout),
            self._patience,
            lambda error: error.partial_result is not None and _STARTED in error.partial_result.err,
        )

    def open_session(self, host: str, command: str) -> RemoteSession:
        child = self._children.start(self._argv(host, command))

        def interpret_status(code: int) -> int | None:
            err = bytes(channel.err)
            exit_code = kubectl.reported_exit_code(err)
            if exit_code is None and not self._children.closed and (code > 0 or (code == 0 and _ENDED not in err)):
                raise _failed(err, _STARTED in err or len(err) >= MAX_KEPT_STDERR)
            channel.err[:] = _printed(err)
            return None if code < 0 else _status(exit_code or 0)

        channel = PipeChannel(self._children, child, interpret_status)
        return LineSession(host, channel)

    def close(self) -> None:
        """See `doctor.transport.Transport.close`. Pods on nodes are removed, in any state."""
        self._children.close()
        if self._nodes:
            self._nodes.remove()

    def _run_once(self, host: str, command: str, stdin: bytes, timeout: float) -> CommandResult:
        argv = self._argv(host, command)
        try:
            with self._slots:
                result = run_command(self._children, argv, stdin, self._patience + timeout, self._limit)
        except TransportError as error:
            if error.kind != "timeout":
                raise
            partial = error.partial_result
            if partial and _STARTED in partial.err:
                text = filled("the command did not end within {0}", seconds_text(timeout))
                raise TransportError("timeout", text, partial_result=partial) from None
            text = filled("the API server started no command in it within {0}", seconds_text(self._patience + timeout))
            raise TransportError("dropped", text, partial_result=partial) from None
        exit_code = kubectl.reported_exit_code(result.err)
        if exit_code is None and (result.code or _ENDED not in result.err):
            failed = _failed(result.err, _STARTED in result.err)
            raise TransportError(failed.kind, failed.text, failed.hint, result)
        return CommandResult(_status(exit_code or 0), result.out, _printed(result.err), result.sent, result.received)

    def _argv(self, host: str, command: str) -> list[str]:
        """Kubectl's words. Raises: TransportError, where there is nothing to enter."""
        access = self._access
        if host in access.unready:
            raise transport_error("error", access.unready[host], f"kubectl -n {access.namespace} describe pod {host}")
        pod, container = (self._nodes.pod(host), "") if self._nodes else (host, access.containers.get(host, ""))
        within = self._nodes.within if self._nodes else ()
        chosen = [f"--container={container}"] if container else []
        if host in access.variables:
            command = " ".join(("export", access.variables[host] + ";", command))
        started, ended = _STARTED.decode().strip(), _ENDED.decode().strip()
        script = f"echo {started} >&2; ({command}\n) && echo {ended} >&2"
        where = [f"--namespace={access.namespace}", "--stdin", pod, *chosen]
        return [*access.kubectl, "exec", *where, "--", *within, "sh", "-c", script]


def _failed(err: bytes, begun: bool) -> TransportError:
    """What became of kubectl, which did not say how the command ended.

    It ends without a word, and with 0, where a stream ends before the command has.
    """
    if not err.replace(_STARTED, b"", 1).strip():
        return transport_error("lost", "the connection through the API server was cut")
    error = kubectl.complaint(err.replace(_STARTED, b"", 1))
    if begun and error.kind in ("lost", "error", "dropped"):
        return transport_error("lost", filled("the connection was cut before the command ended: {0}", error.text))
    return error


def _printed(err: bytes) -> bytes:
    """What the command itself has printed, between what `_argv` and kubectl add to it."""
    before, _, after = kubectl.without_report(err.replace(_STARTED, b"", 1)).rpartition(_ENDED)
    return before + after


def _status(code: int) -> int:
    """As `CommandResult.code` has it: a container runtime tells death by signal N as 128+N."""
    return 128 - code if code in (134, 135, 137, 139, 143) else code
