"""The bundler's loop: commands first, then logs, then the vendors' own tools; what is left out has its reason."""

import base64
import json
import os
import select
import signal
import time
import zlib

from doctor.diagnose.bundler.file_text import FileText, NotText
from doctor.diagnose.bundler.tool_run import RUNNING, ToolRun, new_folder, remove_folder
from doctor.diagnose.excerpter.kernel_messages import kernel_messages
from doctor.diagnose.excerpter.log_search import LogSearch, Omissions, printable_path
from doctor.remote.runtime.command_environment import tool_environment
from doctor.remote.runtime.framing import marked_line
from doctor.remote.runtime.host_texts import with_texts
from doctor.remote.runtime.processes import signal_group
from doctor.remote.runtime.reading import find_tool
from doctor.remote.runtime.signals import on_termination
from doctor.remote.runtime.streams import write_all

PIECE = 1 << 18  # bytes that are sent at once
RATE = 4 << 20  # bytes a second: a session of doctor takes twice as many
MIN_ROOM = 1 << 16
NO_BYTES, NO_TIME = "the limit of bytes", "the time limit"
NO_PLACE = "does not exist there"


class Bundler:
    """One request: `room` is how many bytes of content may still be sent."""

    def __init__(self, request):
        self.request, self.marker = request, request["marker"].encode("ascii")
        self.deadline = time.monotonic() + request["seconds"]
        self.room, self.sent, self.began = request["bytes"], 0, time.monotonic()
        self.left_out = {}  # by section: an `Omissions`
        self.sent_files = set()  # (device, inode) of the files that were sent
        self.folder = ""
        self.environ = dict(tool_environment(), PYTHON=request["python"])

    def run(self):
        commands = self.request["commands"]
        for command in commands:
            if not command["folder"]:
                self.run_command(command)
        if self.request["environment"]:
            text = json.dumps(dict(os.environ), sort_keys=True).encode("ascii")
            self.send_text({"section": "environment", "name": "environment.txt", "origin": "the login shell"}, [text])
        for section in self.request["sections"]:
            self.read_section(section)
        if self.request["kernel"]:
            self.read_kernel()
        for command in commands:
            if command["folder"]:
                self.run_tool(command)
        rows = [[name, row] for name, omissions in sorted(self.left_out.items()) for row in omissions.rows()]
        self.send(b"Z", {"left_out": rows, "name": os.uname()[1]})

    def omit(self, section, reason, example):
        self.left_out.setdefault(section, Omissions()).add(reason, example)

    def remaining(self):
        return self.deadline - time.monotonic()

    def is_usable(self, command):
        """Whether a command can be run; if not, the reason is recorded."""
        absent_tools = [tool for tool in command["requires"] if not find_tool(tool, self.environ["PATH"])]
        reason = "not installed" if absent_tools else ""
        if not reason and command["root"] and os.geteuid():
            reason = "needs root: --sudo runs it"
        if not reason and self.remaining() <= 1:
            reason = NO_TIME
        if reason:
            self.omit(command["section"], reason, absent_tools[0] if absent_tools else command["name"])
        return not reason

    def run_command(self, command):
        if not self.is_usable(command):
            return
        self.send_printed(command, "/", 0, command["name"])

    def send_printed(self, command, folder, most, name):
        """Runs a command in a folder, where it may write so many bytes, and sends what it prints under this name."""
        run = ToolRun(command["script"], folder, min(command["seconds"], self.remaining() / 2), most, nobody_waits)
        run.run(self.environ)
        if nobody_waits():
            stop()
        if run.problem:
            self.omit(command["section"], run.problem, command["name"])
        header = {"section": command["section"], "name": name, "origin": command["shown"]}
        self.send_text(header, [run.text], run.problem)

    def run_tool(self, command):
        """Runs a support tool in a folder of its own, and sends the files that it wrote there."""
        if not self.is_usable(command):
            return
        try:
            self.folder = new_folder(2 * command["most"])
        except OSError as error:
            self.omit(command["section"], error.strerror, command["name"])
            return
        try:
            self.send_printed(command, self.folder, command["most"], command["name"] + ".txt")
            self.read_section({"name": command["section"], "places": [self.folder], "age": 0}, self.folder)
        finally:
            remove_folder(self.folder)
            self.folder = ""

    def read_section(self, section, base=""):
        """Sends the files that places name, the newest first."""
        omissions = self.left_out.setdefault(section["name"], Omissions())
        search = LogSearch({"skipped": (), "age": section["age"]}, omissions)
        search.search([place for place in section["places"] + named_by_variables(section) if place])
        for place in search.unmatched if section.get("named") else ():
            omissions.add(NO_PLACE, place)
        for path, status in search.newest_first(self.request["files"]):
            self.read_file(section["name"], path, status, omissions, base)

    def read_file(self, section, path, status, omissions, base):
        key, name = (status.st_dev, status.st_ino), printable_path(path)
        if key in self.sent_files and not base:  # a tool's file may have the number of one that was removed
            return
        if self.has_no_room(name, omissions):
            return
        if os.path.splitext(path)[1] in self.request["skipped"]:
            omissions.add("no log by its name", name)
            return
        try:
            text = FileText(path, status, min(self.request["share"], self.room))
            name_in_section = printable_path(os.path.relpath(path, base)) if base else name
            header = {"section": section, "name": name_in_section.lstrip("/"), "origin": name}
            header.update(size=text.status.st_size, modified=text.status.st_mtime, inode=text.status.st_ino)
            self.sent_files.add(key)
            self.send_file(header, text)
        except NotText as error:
            omissions.add(str(error), name)
        except OSError as error:
            omissions.add(error.strerror or str(error), name)

    def has_no_room(self, name, omissions):
        if nobody_waits():
            stop()
        reason = NO_BYTES if self.room < MIN_ROOM else NO_TIME if self.remaining() <= 1 else ""
        if reason:
            omissions.add(reason, name)
        return bool(reason)

    def send_file(self, header, text):
        """Raises: NotText before anything was sent."""
        pieces = text.pieces()
        first = next(pieces, b"")
        self.send(b"F", header)
        while first:
            self.send_data(first)
            if self.remaining() <= 0:
                text.complete, text.note = False, NO_TIME
                break
            first = next(pieces, b"")
        pieces.close()
        note = text.note or ("" if text.complete else NO_BYTES)
        self.send(b"E", {"complete": text.complete, "note": note})

    def read_kernel(self):
        age = self.request["age"]
        data, problem = kernel_messages(time.time() - age if age else 0)
        if data is None:
            self.omit("kernel", problem, "the kernel's messages")
            return
        self.send_text({"section": "kernel", "name": "kernel.log", "origin": "/dev/kmsg"}, [data[-self.room :]])

    def send_text(self, header, pieces, note=""):
        self.send(b"F", header)
        for piece in pieces:
            self.send_data(piece)
        self.send(b"E", {"complete": not note, "note": note})

    def send_data(self, data):
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            self.room -= len(piece)
            self.send_bytes(b"D" + piece)

    def send(self, kind, fields):
        self.send_bytes(kind + json.dumps(with_texts(fields)).encode("ascii"))

    def send_bytes(self, data):
        line = marked_line(self.marker, base64.b64encode(zlib.compress(data, 6)))
        self.sent += len(line)
        write_all(1, line)
        time.sleep(max(0, self.sent / float(RATE) - (time.monotonic() - self.began)))


def named_by_variables(section):
    """Places that this host's own environment names: `%x` in a name stands for a part that each process chooses."""
    places = []
    for variable, below in section.get("variables", ()):
        value = os.environ.get(variable, "")
        if value.startswith("/"):
            parts = value.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]").split("%")
            places.append(parts[0] + "".join("*" + word[1:] for word in parts[1:]) + below)
    return places


def nobody_waits():
    """Whether the controller has gone."""
    return bool(select.select([0], [], [], 0)[0]) and not os.read(0, 4096)


def stop(*_):
    """Ends all tools and the program: the caller has stopped waiting for the bundle."""
    for pid in RUNNING:
        signal_group(pid)
    if CURRENT and CURRENT[0].folder:
        remove_folder(CURRENT[0].folder)
    os._exit(3)


CURRENT = []


def main(request, program):
    """Collects what the request names, and exits with 0."""
    request = json.loads(request.decode("ascii"))
    on_termination(stop)
    signal.signal(signal.SIGPIPE, stop)
    os.nice(10)
    write_all(1, b"\n")
    CURRENT.append(Bundler(request))
    CURRENT[0].run()
    os._exit(0)
