"""Servers on this machine that behave as no test host would: each connection is handled by a function."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from doctor.transport import TransportError
from doctor.transport.options import SshOptions
from doctor.transport.ssh.ssh_transport import Ssh

HOST_KEY = paramiko.ECDSAKey.generate()
PASSWORD = "open sesame"
SUCCESS = 99
"""The type of the message that grants a channel's request."""
Handler = Callable[[socket.socket], object]


@contextlib.contextmanager
def listening(handle: Handler) -> Iterator[int]:
    """A port on 127.0.0.1; its connections are closed when they are handled, or at the end."""
    stopped = threading.Event()
    links: list[socket.socket] = []

    def serve(link: socket.socket) -> None:
        with link, contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            handle(link)

    def accept(listener: socket.socket) -> None:
        while not stopped.is_set():
            with contextlib.suppress(OSError):
                link, _ = listener.accept()
                links.append(link)
                threads.append(threading.Thread(target=serve, args=[link]))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = [threading.Thread(target=accept, args=[listener])]
        threads[0].start()
        try:
            yield listener.getsockname()[1]
        finally:
            stopped.set()
            for link in (listener, *links):
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(10)


class Orderly(paramiko.Transport):
    """Lets a command be answered only after its request was."""

    def __init__(self, link: socket.socket, window: int) -> None:
        super().__init__(link, default_window_size=window)
        self.replied = threading.Semaphore(0)

    def _send_user_message(self, data: paramiko.Message) -> None:
        super()._send_user_message(data)  # type: ignore[misc]
        if data.asbytes()[0] == SUCCESS:
            self.replied.release()


class Server(paramiko.ServerInterface):
    """An SSH server; subclasses change what it does."""

    window = 1 << 21

    def serve(self, link: socket.socket) -> None:
        transport = Orderly(link, self.window)
        transport.set_log_channel("tests.silent")
        transport.add_server_key(HOST_KEY)
        transport.start_server(event=threading.Event(), server=self)
        transport.join(30)
        transport.close()

    def answer(self, transport: paramiko.Transport, channel: paramiko.Channel, command: bytes) -> None:
        """What becomes of a command."""
        channel.sendall(command)
        channel.send_exit_status(0)
        channel.close()

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        return int(AUTH_SUCCESSFUL if password == PASSWORD else AUTH_FAILED)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return int(OPEN_SUCCEEDED)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._answer, args=[channel, command]).start()
        return True

    def _answer(self, channel: paramiko.Channel, command: bytes) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            transport = channel.get_transport()
            assert isinstance(transport, Orderly)
            transport.replied.acquire(timeout=10)
            self.answer(transport, channel, command)


class Client:
    """Our side: an `Ssh` with a configuration that leads every host name to one port."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder, self.options = folder, {"connect_timeout": 5.0, "password": PASSWORD, **options}
        self.known_hosts = folder / "known_hosts"
        self.config = folder / "ssh_config"

    @contextlib.contextmanager
    def to(self, port: int, lines: str = "", key: paramiko.PKey | None = HOST_KEY) -> Iterator[Ssh]:
        if key:
            self.known_hosts.write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
        self.config.write_text(
            f"{lines}\nUser tester\nHostName 127.0.0.1\nPort {port}\nUserKnownHostsFile {self.known_hosts}\n"
            "GlobalKnownHostsFile /dev/null\nIdentityFile none\nIdentityAgent none\n"
        )
        transport = Ssh(SshOptions(config=str(self.config), **self.options))  # type: ignore[arg-type]
        try:
            yield transport
        finally:
            transport.close()

    def stop(self, handle: Handler, command: str = "true", timeout: float = 5.0, **ssh: object) -> TransportError:
        """The error that a run against a server ends with."""
        with listening(handle) as port, self.to(port, **ssh) as transport:  # type: ignore[arg-type]
            try:
                result = transport.run("fake", command, b"", timeout)
            except TransportError as error:
                return error
            raise AssertionError(f"it went well: {result}")
