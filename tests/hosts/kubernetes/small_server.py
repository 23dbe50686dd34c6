"""A small server that speaks to kubectl as the API server does, as far as doctor asks: lists, exec, logs, refusals.

kubectl itself is real. A pod is a folder of this machine: `exec` runs there by sh in a session of its own, or in a test
host (`SmallServer.enter`), streamed in the frames of ``v5.channel.k8s.io``, and its log is the file ``log`` there. What
the server says is of the forms that Kubernetes 1.20.2 has in its source: Status objects (apimachinery,
pkg/api/errors/errors.go: NewForbidden, NewNotFound, NewUnauthorized), exit codes (client-go, tools/remotecommand: v4
and v5), refusals of the kubelet (pkg/kubelet/server). Nothing of it is a recording: those are in ``recorded.json``, by
`record.py`, and `cluster.py` is the real thing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.readable import readable

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
NAMESPACE = "team-a"
_RESOURCES = [
    {
        "name": "pods",
        "singularName": "",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["get", "list"],
        "shortNames": ["po"],
    },
    {"name": "events", "singularName": "", "namespaced": True, "kind": "Event", "verbs": ["get", "list"]},
]


def pod(name: str, *, phase: str = "Running", labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A pod as the API server would list it; ``more``: parts such as ``owner`` and ``status``."""
    containers = more.get("containers", ["main"])
    running = [{"name": item, "ready": True, "restartCount": 0, "state": {"running": {}}} for item in containers]
    status = {"phase": phase, "podIP": "127.0.0.1", "containerStatuses": running, **more.get("status", {})}
    metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "labels": labels or {}, "uid": name}
    metadata["creationTimestamp"] = more.get("created", "2026-01-01T00:00:00Z")
    metadata |= {"annotations": more.get("annotations", {}), **more.get("metadata", {})}
    if "owner" in more:
        kind, owner = more["owner"].split("/")
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": kind, "name": owner, "uid": owner, "controller": True}
        ]
    spec = {"nodeName": "node1", "containers": [{"name": item, "image": "x"} for item in containers]}
    spec["initContainers"] = [{"name": item, "restartPolicy": "Always"} for item in more.get("sidecars", ())]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


class SmallServer:
    """Serves ``pods``, until `close`. ``forbidden`` holds verbs such as ``list pods`` or ``create pods/exec``."""

    def __init__(self, folder: Path, pods: list[dict[str, Any]], port: int = 0) -> None:
        self.folder, self.pods = folder, {item["metadata"]["name"]: item for item in pods}
        self.forbidden: set[str] = set()
        self.asked: list[str] = []
        self.fail: dict[str, str] = {}
        """By pod: what the kubelet, or the way to it, answers to an exec."""
        self.delay = 0.0
        self.enter: Callable[[str, list[str]], list[str]] = lambda name, argv: argv
        """The command line that runs one in a pod."""
        self.variables: dict[str, str] | None = None
        """The environment of the containers; else that of this process."""
        for name in self.pods:
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.commands: set[int] = set()
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(self._configuration())

    def _configuration(self) -> str:
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
                "users": [{"name": "ann", "user": {"token": "t"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "ann", "namespace": NAMESPACE}}],
                "current-context": "c",
            }
        )

    def environment(self) -> dict[str, str]:
        """What kubectl needs, with a cache of its own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}
        return {**kept, "KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.folder / "cache")}

    def close(self) -> None:
        kill_all(self)
        self._http.shutdown()
        self._http.server_close()
        deadline = time.monotonic() + 10
        while self.commands and time.monotonic() < deadline:
            time.sleep(0.01)

    def status(self, code: int, reason: str, message: str, name: str = "") -> bytes:
        text = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        details = {"kind": "pods", "name": name} if name else {}
        return json.dumps({**text, "reason": reason, "details": details, "code": code}).encode()


def _handler(server: SmallServer) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        small = server

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    small: SmallServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the base class gives it
        """Says nothing."""

    def do_POST(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        small, url = self.small, urlsplit(self.path)
        query = parse_qs(url.query)
        small.asked.append(f"{self.command} {url.path}")
        time.sleep(small.delay)
        base = f"/api/v1/namespaces/{NAMESPACE}/pods"
        if url.path == base:
            self._list(query)
        elif url.path.startswith(base + "/"):
            self._one(url.path[len(base) + 1 :], query)
        elif url.path == "/api":
            self._send(200, json.dumps({"kind": "APIVersions", "versions": ["v1"]}).encode())
        elif url.path == "/apis":
            self._send(200, json.dumps({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}).encode())
        elif url.path == "/api/v1":
            self._send(
                200, json.dumps({"kind": "APIResourceList", "groupVersion": "v1", "resources": _RESOURCES}).encode()
            )
        elif url.path.endswith("/events"):
            answer = {"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": []}
            if not self._forbids("list", "events"):
                self._send(200, json.dumps(answer).encode())
        else:
            self._refuse(404, "NotFound", "the server could not find the requested resource")

    def _list(self, query: dict[str, list[str]]) -> None:
        if self._forbids("list", "pods"):
            return
        items = list(self.small.pods.values())
        for part in filter(None, query.get("labelSelector", [""])[0].split(",")):
            key, _, value = part.partition("=")
            items = [item for item in items if item["metadata"]["labels"].get(key) == value]
        first, limit = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["500"])[0])
        page, rest = items[first : first + limit], len(items) > first + limit
        metadata = {"continue": str(first + limit)} if rest else {}
        answer = {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": page}
        self._send(200, json.dumps(answer).encode())

    def _one(self, path: str, query: dict[str, list[str]]) -> None:
        name, _, part = path.partition("/")
        verb = ("create" if self.command == "POST" else "get", f"pods/{part}" if part else "pods")
        if self._forbids("create" if part == "exec" else verb[0], verb[1]):
            return
        if name not in self.small.pods:
            self._refuse(404, "NotFound", f'pods "{name}" not found', name)
        elif part == "exec":
            self._exec(name, query["command"])
        elif part == "log":
            previous = "previous.log" if query.get("previous") == ["true"] else "log"
            file = self.small.folder / name / previous
            self._send(200, file.read_bytes() if file.exists() else b"", "text/plain")
        else:
            self._send(200, json.dumps(self.small.pods[name]).encode())

    def _forbids(self, verb: str, resource: str) -> bool:
        if f"{verb} {resource}" not in self.small.forbidden:
            return False
        where = f'in API group "" in the namespace "{NAMESPACE}"'
        text = f'{resource.partition("/")[0]} is forbidden: User "ann" cannot {verb} resource "{resource}" {where}'
        self._refuse(403, "Forbidden", text)
        return True

    def _refuse(self, code: int, reason: str, message: str, name: str = "") -> None:
        self._send(code, self.small.status(code, reason, message, name))

    def _send(self, code: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    # ---- exec

    def _exec(self, name: str, argv: list[str]) -> None:
        if name in self.small.fail:
            return self._refuse(500, "InternalError", self.small.fail[name])
        if "websocket" not in self.headers.get("Upgrade", "").lower():
            return self._refuse(400, "BadRequest", "Upgrade request required")
        accept = base64.b64encode(hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + _MAGIC).digest()).decode()
        protocols = [item.strip() for item in self.headers["Sec-WebSocket-Protocol"].split(",")]
        self.send_response(101)
        for key, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            self.send_header(key, value)
        self.send_header("Sec-WebSocket-Protocol", protocols[0])
        self.end_headers()
        self.close_connection = True
        _Stream(self.small, self.connection).run(self.small.enter(name, argv), self.small.folder / name)
        return None


class _Stream:
    """One command over one connection."""

    def __init__(self, small: SmallServer, link: socket.socket) -> None:
        self._small, self._link, self._rest, self._lock = small, link, b"", threading.Lock()

    def run(self, argv: list[str], folder: Path) -> None:
        pipe = subprocess.PIPE
        try:
            child = subprocess.Popen(
                argv,
                cwd=folder,
                env=self._small.variables,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
            )
        except OSError:
            self._end({"status": "Failure", "reason": "InternalError", "message": f'exec: "{argv[0]}": not found'})
            return
        self._small.commands.add(child.pid)
        reader = threading.Thread(target=self._read, args=(child,), daemon=True)
        reader.start()
        try:
            with suppress(OSError):
                self._copy(child)
        finally:
            code = child.wait()
            self._small.commands.discard(child.pid)
        for stream in (child.stdout, child.stderr):
            assert stream
            stream.close()
        self._end(_outcome(128 - code if code < 0 else code))
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        reader.join(5)

    def _copy(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout and child.stderr
        open_files = {child.stdout.fileno(): 1, child.stderr.fileno(): 2}
        while open_files:
            for file in readable(open_files):
                piece = os.read(file, 1 << 15)
                if piece:
                    self._send(bytes([open_files[file]]) + piece)
                else:
                    del open_files[file]

    def _end(self, status: dict[str, Any]) -> None:
        with suppress(OSError):
            self._send(b"\x03" + json.dumps({"metadata": {}, **status}).encode())
            self._frame(8, b"\x03\xe8")

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        """What the client sends, until it goes: then the input of the command ends, as the kubelet has it."""
        assert child.stdin
        with suppress(OSError, EOFError):
            while True:
                kind, data = self._receive()
                if kind == 8:
                    break
                if kind == 9:
                    self._frame(10, data)
                elif kind == 2 and data[:1] == b"\x00":
                    child.stdin.write(data[1:])
                    child.stdin.flush()
                elif kind == 2 and data == b"\xff\x00":
                    child.stdin.close()
        with suppress(OSError, ValueError):
            child.stdin.close()

    def _receive(self) -> tuple[int, bytes]:
        head = self._take(2)
        length = head[1] & 127
        if length == 126:
            (length,) = struct.unpack(">H", self._take(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self._take(8))
        mask, data = self._take(4), bytearray(self._take(length))
        long_mask = (mask * (length // 4 + 1))[:length]
        data = bytearray((int.from_bytes(data, "big") ^ int.from_bytes(long_mask, "big")).to_bytes(length, "big"))
        return head[0] & 15, bytes(data)

    def _take(self, count: int) -> bytes:
        while len(self._rest) < count:
            piece = self._link.recv(1 << 16)
            if not piece:
                raise EOFError
            self._rest += piece
        data, self._rest = self._rest[:count], self._rest[count:]
        return data

    def _send(self, data: bytes) -> None:
        self._frame(2, data)

    def _frame(self, kind: int, data: bytes) -> None:
        length = len(data)
        head = bytes([0x80 | kind, length]) if length < 126 else bytes([0x80 | kind, 126]) + struct.pack(">H", length)
        with self._lock:
            self._link.sendall(head + data)


def _outcome(code: int) -> dict[str, Any]:
    if not code:
        return {"status": "Success"}
    message = f"command terminated with non-zero exit code: exit status {code}"
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "message": message, "details": {"causes": causes}}


def kill_all(small: SmallServer) -> None:
    """Ends the commands that still run, as if their pods died."""
    for pid in list(small.commands):
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
