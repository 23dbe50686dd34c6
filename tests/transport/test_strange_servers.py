"""Whatever a port answers with, the host gets one plain sentence of the right kind, in time, and nothing stays."""

from __future__ import annotations

import base64
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from doctor.transport import TransportError
from doctor.transport.ssh.identity import pack_string
from tests.transport.fake import Client, Server, listening

BANNER = b"SSH-2.0-Strange_1.0\r\n"


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path)


@pytest.fixture
def hasty(tmp_path: Path) -> Client:
    return Client(tmp_path, connect_timeout=0.4)


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    end = time.monotonic() + 5
    for thread in set(threading.enumerate()) - before:
        thread.join(max(end - time.monotonic(), 0))
    assert not [thread for thread in set(threading.enumerate()) - before if thread.is_alive()]


def wait(link: socket.socket) -> None:
    """Takes in whatever comes, until the client hangs up."""
    while link.recv(1 << 16):
        pass


def offer(kex: str) -> bytes:
    """The packet with which a server begins a key exchange."""
    message = paramiko.Message()
    message.add_bytes(bytes([20]) + b"c" * 16)
    for names in (kex, "ssh-rsa", *["aes128-ctr"] * 2, *["hmac-sha2-256"] * 2, *["none"] * 2, "", ""):
        message.add_string(names)
    message.add_bytes(bytes(5))
    payload = message.asbytes()
    padding = 8 - (len(payload) + 5) % 8 + 8
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


class TestBeforeTheBanner:
    def test_nothing_listens(self, client: Client) -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        with client.to(port) as transport, pytest.raises(TransportError) as stop:
            transport.run("fake", "true", b"", 5)
        assert stop.value.kind == "refused"
        assert stop.value.text == f"port {port} of 127.0.0.1 refuses connections: nothing listens there"

    def test_the_name_does_not_resolve(self, client: Client) -> None:
        with client.to(22, "HostName no-such-host.invalid") as transport, pytest.raises(TransportError) as stop:
            transport.run("fake", "true", b"", 5)
        assert stop.value.kind == "name"
        assert stop.value.text.startswith("the name no-such-host.invalid does not resolve: ")

    def test_silence(self, hasty: Client) -> None:
        began = time.monotonic()
        stop = hasty.stop(wait)
        assert stop.kind == "silent"
        assert "sent no SSH banner within 0.4 s" in stop.text
        assert time.monotonic() - began < 2

    @pytest.mark.parametrize("arguments", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"* OK IMAP4rev1 ready\r\n", b"\0\1\2"])
    def test_another_protocol(self, hasty: Client, arguments: bytes) -> None:
        stop = hasty.stop(lambda link: (link.sendall(arguments), wait(link)))
        assert stop.kind == "not-ssh"
        assert "does not speak SSH" in stop.text

    def test_endless_chatter(self, client: Client) -> None:
        def chatter(link: socket.socket) -> None:
            while True:
                link.sendall(b"\x1b[31mblah\n" * 1000)

        stop = client.stop(chatter)
        assert stop.kind == "not-ssh"
        assert "\x1b" not in stop.text

    def test_words_before_the_banner_are_allowed(self, client: Client) -> None:
        def greet(link: socket.socket) -> None:
            link.sendall(b"Welcome to the machine.\r\n")
            Server().serve(link)

        with listening(greet) as port, client.to(port) as transport:
            assert transport.run("fake", "hello", b"", 5).out == b"hello"

    def test_an_old_protocol(self, client: Client) -> None:
        assert client.stop(lambda link: (link.sendall(b"SSH-1.5-Cisco\r\n"), wait(link))).kind == "not-ssh"

    def test_hanging_up_at_once(self, client: Client) -> None:
        stop = client.stop(lambda link: None)
        assert (stop.kind, "MaxStartups" in stop.hint) == ("lost", True)
        assert "closed the connection at once" in stop.text

    def test_hanging_up_with_a_word(self, client: Client) -> None:
        stop = client.stop(lambda link: link.sendall(b"Exceeded MaxStartups\r\n"))
        assert stop.kind == "lost"
        assert "after 'Exceeded MaxStartups'" in stop.text

    def test_a_reset(self, client: Client) -> None:
        def reset(link: socket.socket) -> None:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        assert client.stop(reset).kind == "lost"


class TestTheKeyExchange:
    def test_that_never_ends(self, hasty: Client) -> None:
        stop = hasty.stop(lambda link: (link.sendall(BANNER), wait(link)))
        assert stop.kind == "silent"
        assert "speaks SSH, and the key exchange did not finish within 0.4 s" in stop.text

    def test_that_is_cut(self, client: Client) -> None:
        stop = client.stop(lambda link: link.sendall(BANNER))
        assert (stop.kind, stop.text) == ("lost", "the connection was cut during the key exchange")

    @pytest.mark.parametrize(
        ("nonsense", "kind"),
        [(b"\xff" * 64, "error"), (b"\0\0\0\x0c\x04\x14xxxxxxx\0\0\0\0", "not-ssh"), (b"\0" * 64, "error")],
        ids=["a packet of 4 GiB", "an empty offer", "zeros"],
    )
    def test_that_is_nonsense(self, client: Client, nonsense: bytes, kind: str) -> None:
        stop = client.stop(lambda link: (link.sendall(BANNER + nonsense), wait(link)))
        assert stop.kind == kind

    def test_without_a_common_algorithm(self, client: Client) -> None:
        def old(link: socket.socket) -> None:
            link.sendall(BANNER + offer("kex-of-tomorrow"))
            wait(link)

        stop = client.stop(old)
        assert (stop.kind, stop.hint) == ("not-ssh", "--transport openssh")
        assert "no common algorithm" in stop.text


class TestTheLogin:
    def test_that_never_ends(self, hasty: Client) -> None:
        class Slow(Server):
            def check_auth_password(self, username: str, password: str) -> int:
                threading.Event().wait(1.0)
                return paramiko.AUTH_FAILED

        stop = hasty.stop(lambda link: Slow().serve(link))
        assert stop.kind == "silent"
        assert "the login did not finish within 0.4 s" in stop.text

    def test_a_wrong_password(self, tmp_path: Path) -> None:
        stop = Client(tmp_path, password="wrong").stop(lambda link: Server().serve(link))
        assert stop.kind == "auth"
        assert stop.text == "the login as tester was refused: the password was wrong; it accepts password"

    def test_no_key_and_no_password(self, tmp_path: Path) -> None:
        stop = Client(tmp_path, password="").stop(lambda link: Server().serve(link))
        assert (stop.kind, stop.hint) == ("auth", "--ask-pass")
        assert stop.text == "the login as tester was refused: there is no key to offer; it accepts password"

    def test_no_password_at_all_is_needed(self, tmp_path: Path) -> None:
        class Open(Server):
            def check_auth_none(self, username: str) -> int:
                return paramiko.AUTH_SUCCESSFUL

        with listening(lambda link: Open().serve(link)) as port, Client(tmp_path, password="").to(port) as transport:
            assert transport.run("fake", "hello", b"", 5).out == b"hello"

    def test_a_password_that_is_asked_for(self, client: Client) -> None:
        """keyboard-interactive: what PAM speaks."""

        class Asking(Server):
            def get_allowed_auths(self, username: str) -> str:
                return "keyboard-interactive"

            def check_auth_password(self, username: str, password: str) -> int:
                return paramiko.AUTH_FAILED

            def check_auth_interactive(self, username: str, submethods: str) -> paramiko.InteractiveQuery:
                return paramiko.InteractiveQuery("", "", ("Password:", False))

            def check_auth_interactive_response(self, responses: list[str]) -> int:
                return self.check(responses)

            def check(self, responses: list[str]) -> int:
                return super().check_auth_password("", responses[0])

        with listening(lambda link: Asking().serve(link)) as port, client.to(port) as transport:
            assert transport.run("fake", "hello", b"", 5).out == b"hello"

    def test_gssapi_is_for_the_other_transport(self, tmp_path: Path) -> None:
        class Kerberos(Server):
            def get_allowed_auths(self, username: str) -> str:
                return "gssapi-with-mic"

        stop = Client(tmp_path, password="").stop(lambda link: Kerberos().serve(link), lines="GSSAPIAuthentication yes")
        assert (stop.kind, stop.hint) == ("unsupported", "--transport openssh")

    def test_a_security_key_is_for_the_other_transport(self, tmp_path: Path) -> None:
        path = tmp_path / "id_ed25519_sk"
        path.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
        blob = base64.b64encode(pack_string(b"sk-ssh-ed25519@openssh.com")).decode()
        (tmp_path / "id_ed25519_sk.pub").write_text(f"sk-ssh-ed25519@openssh.com {blob}\n")
        client = Client(tmp_path, password="")
        stop = client.stop(lambda link: Server().serve(link), lines=f"IdentityFile {path}")
        assert (stop.kind, stop.hint) == ("unsupported", "--transport openssh")
        assert f"the only key for tester, {path}, is on a security key" in stop.text


class TestACommand:
    def test_ended_by_a_signal(self, client: Client) -> None:
        class Killing(Server):
            signal = "KILL"

            def answer(self, transport: paramiko.Transport, channel: paramiko.Channel, command: bytes) -> None:
                message = paramiko.Message()
                message.add_byte(bytes([98]))
                message.add_int(channel.remote_chanid)
                message.add_string("exit-signal")
                message.add_boolean(False)
                message.add_string(self.signal)
                message.add_boolean(False)
                message.add_string("")
                message.add_string("")
                transport._send_user_message(message)
                channel.close()

        with listening(lambda link: Killing().serve(link)) as port, client.to(port) as transport:
            assert transport.run("fake", "true", b"", 5).code == -9

        class Inventing(Killing):
            signal = "WHIM"

        assert client.stop(lambda link: Inventing().serve(link)).text == "the command was killed by a signal, WHIM"

    def test_without_an_exit_status_did_not_go_well(self, client: Client) -> None:
        class Mute(Server):
            def answer(self, transport: paramiko.Transport, channel: paramiko.Channel, command: bytes) -> None:
                channel.sendall(b"half")
                channel.close()

        stop = client.stop(lambda link: Mute().serve(link))
        assert stop.kind == "lost"
        assert stop.partial_result is not None
        assert (stop.partial_result.out, stop.partial_result.code) == (b"half", -1)

    def test_cut_midway(self, client: Client) -> None:
        class Cutting(Server):
            def answer(self, transport: paramiko.Transport, channel: paramiko.Channel, command: bytes) -> None:
                channel.sendall(b"half")
                transport.close()

        stop = client.stop(lambda link: Cutting().serve(link))
        assert (stop.kind, stop.text) == ("lost", "the connection was cut before the command ended")

    def test_that_is_not_taken(self, client: Client) -> None:
        class Refusing(Server):
            def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
                return False

        stop = client.stop(lambda link: Refusing().serve(link))
        assert (stop.kind, stop.text) == ("error", "it refused to run the command")

    def test_that_is_neither_taken_nor_refused(self, client: Client) -> None:
        class Stuck(Server):
            def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
                threading.Event().wait(1.0)
                return True

        stop = client.stop(lambda link: Stuck().serve(link), timeout=0.3)
        assert (stop.kind, stop.text) == ("timeout", "the command did not end within 0.3 s")

    def test_for_which_there_is_no_session(self, client: Client) -> None:
        class Full(Server):
            def check_channel_request(self, kind: str, chanid: int) -> int:
                return paramiko.OPEN_FAILED_RESOURCE_SHORTAGE

        stop = client.stop(lambda link: Full().serve(link))
        assert stop.kind == "error"
        assert "refused to open a session" in stop.text

    def test_whose_input_is_larger_than_the_window(self, client: Client) -> None:
        """The server takes little at a time, and talks before it listens."""

        class Narrow(Server):
            window = 1 << 15

            def answer(self, transport: paramiko.Transport, channel: paramiko.Channel, command: bytes) -> None:
                channel.sendall(b"x" * 1_000_000)
                taken = 0
                while taken < 500_000:
                    taken += len(channel.recv(4096))
                channel.sendall_stderr(b"all of it")
                channel.send_exit_status(0)
                channel.close()

        with listening(lambda link: Narrow().serve(link)) as port, client.to(port) as transport:
            result = transport.run("fake", "true", b"y" * 500_000, 10)
        assert (result.code, len(result.out), result.err) == (0, 1_000_000, b"all of it")

    def test_that_ignores_its_input(self, client: Client) -> None:
        class Deaf(Server):
            window = 1 << 15

        with listening(lambda link: Deaf().serve(link)) as port, client.to(port) as transport:
            assert transport.run("fake", "hello", b"y" * 500_000, 10).out == b"hello"


class TestRounds:
    def test_the_second_command_goes_over_the_same_connection(self, client: Client) -> None:
        links = []

        def serve(link: socket.socket) -> None:
            links.append(link)
            Server().serve(link)

        with listening(serve) as port, client.to(port) as transport:
            assert [transport.run("fake", word, b"", 5).out for word in ("one", "two", "three")] == [
                b"one",
                b"two",
                b"three",
            ]
        assert len(links) == 1

    def test_a_connection_that_ended_in_between_is_made_anew(self, client: Client) -> None:
        has_answer = threading.Event()

        class Once(Server):
            def answer(self, transport: paramiko.Transport, channel: paramiko.Channel, command: bytes) -> None:
                super().answer(transport, channel, command)
                has_answer.wait(30)  # what was sent would be lost with the connection
                transport.close()

        def is_connected() -> bool:
            clients = [thread for thread in threading.enumerate() if isinstance(thread, paramiko.Transport)]
            return any(client.is_active() and not client.server_mode for client in clients)

        with listening(lambda link: Once().serve(link)) as port, client.to(port) as transport:
            assert transport.run("fake", "one", b"", 5).out == b"one"
            has_answer.set()
            deadline = time.monotonic() + 30
            while is_connected() and time.monotonic() < deadline:
                time.sleep(0.01)
            assert transport.run("fake", "two", b"", 5).out == b"two"


class TestClosing:
    """`close` from another thread ends whatever a run waits for."""

    @pytest.mark.parametrize("arguments", [b"", BANNER])
    def test_while_connecting(self, client: Client, arguments: bytes) -> None:
        reached = threading.Event()

        def stall(link: socket.socket) -> None:
            link.sendall(arguments)
            reached.set()
            wait(link)

        self.ends(client, stall, reached)

    def test_while_a_command_runs(self, client: Client) -> None:
        reached = threading.Event()

        class Endless(Server):
            def answer(self, transport: paramiko.Transport, channel: paramiko.Channel, command: bytes) -> None:
                reached.set()
                channel.recv(1)

        self.ends(client, lambda link: Endless().serve(link), reached)

    def ends(self, client: Client, handle: object, reached: threading.Event) -> None:
        stops: list[TransportError] = []
        with listening(handle) as port, client.to(port) as transport:  # type: ignore[arg-type]

            def run() -> None:
                with pytest.raises(TransportError) as stop:
                    transport.run("fake", "true", b"", 60)
                stops.append(stop.value)

            thread = threading.Thread(target=run)
            thread.start()
            assert reached.wait(5)
            transport.close()
            thread.join(2)
            assert [stop.kind for stop in stops] == ["budget"]
            with pytest.raises(TransportError) as stop:
                transport.run("fake", "true", b"", 5)
            assert stop.value.kind == "budget"
