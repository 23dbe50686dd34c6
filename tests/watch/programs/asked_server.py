"""A server of one process, and a client that has asked it: `python asked_server.py KIND FOLDER`.

The process is taken for one that uses torch by the name of a file that it has mapped.
"""

import asyncio
import hashlib
import http.server
import mmap
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

KIND, FOLDER = sys.argv[1], Path(sys.argv[2])
PORT = int(os.environ.get("ASKED_PORT", "0"))
THROUGH = int(os.environ.get("ASKED_THROUGH", "0"))
"""The port of a proxy before it; 0: it is asked by the client itself."""
QUESTION = b"POST /generate HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def mapped_library():
    """As after `import torch`."""
    path = FOLDER / "torch" / "libtorch_cpu.so"
    path.parent.mkdir()
    path.write_bytes(bytes(4096))
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


def locked():
    """A thread holds the lock that this one wants."""
    lock = threading.Lock()
    threading.Thread(target=lambda: (lock.acquire(), time.sleep(10000)), daemon=True).start()
    time.sleep(0.1)
    with lock:
        pass


def silent():
    """Asks a server that never answers."""
    server = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(server.getsockname()) as client:
        client.sendall(QUESTION)
        client.recv(1)


def child():
    """Waits for a command that does not end."""
    subprocess.run(["sleep", "10000"], check=False)


def computes():
    """A long generation."""
    while True:
        hashlib.sha256(bytes(1 << 20)).hexdigest()


def polls():
    """Asks again and again whether it is there."""
    while True:
        time.sleep(0.3)


WORK = {"sleep": lambda: time.sleep(10000), "lock": locked, "silent": silent, "child": child, "computes": computes,
        "polls": polls, "events": queue.Queue().get, "idle": lambda: None, "unread": lambda: None,
        "long poll": lambda: None}  # fmt: skip
HANDLE = WORK.get(KIND.partition(": ")[2])


def struck():
    """Tells that the handler has begun."""
    (FOLDER / "struck").write_text(str(os.getpid()))


class Handler(http.server.BaseHTTPRequestHandler):
    """Of the standard library's server."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        struck()
        HANDLE()
        size = 1 << 28 if KIND.endswith("unread") else 2
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(bytes(size))

    def log_message(self, *words):
        """Nothing."""


async def answered(reader, writer):
    """One connection of the server with an event loop."""
    while await reader.readuntil(b"{}"):
        struck()
        if KIND.endswith("long poll"):
            await asyncio.sleep(10000)
        HANDLE()
        writer.write(ANSWER)


async def serve_events():
    """Every connection in one thread."""
    server = await asyncio.start_server(answered, "127.0.0.1", PORT)
    start_client(server.sockets[0].getsockname())
    await server.serve_forever()


def start_client(address):
    """Another process, which asks and waits for the answer."""
    program = f"""
import socket, time
client = socket.create_connection({("127.0.0.1", THROUGH or address[1])!r})
client.sendall({QUESTION!r})
if {KIND.endswith("unread")}:
    time.sleep(10000)
while client.recv(1 << 16):
    pass
"""
    subprocess.Popen([sys.executable, "-S", "-c", program])


def main():
    """Serves until it is ended."""
    server_kind = KIND.partition(": ")[0]
    if server_kind == "events":
        asyncio.run(serve_events())
    kinds = {"threads": http.server.ThreadingHTTPServer, "beside": http.server.ThreadingHTTPServer}
    server = kinds.get(server_kind, http.server.HTTPServer)(("127.0.0.1", PORT), Handler)
    if server_kind == "silent":
        (FOLDER / "struck").write_text(str(os.getpid()))
    start_client(server.server_address)
    if server_kind == "deaf":  # it never accepts
        struck()
        HANDLE()
    if server_kind == "beside":  # the main thread has nothing to do
        threading.Thread(target=server.serve_forever, daemon=True).start()
        time.sleep(10000)
    server.serve_forever()


if __name__ == "__main__":
    library = mapped_library()
    main()
