"""Joins a program's modules, and starts it by an interpreter of a host. Nothing is written to the host's disk.

A module of a program imports only the standard library, and names of the modules before it by ``from doctor...``. In
the joined text all modules share one namespace, so these imports are left out, like docstrings, comments and repeated
imports: they would only make longer what every host is sent.
"""

from __future__ import annotations

import base64
import re
import shlex
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

INTERPRETERS = "python3 /usr/bin/python3 /usr/local/bin/python3 /usr/libexec/platform-python"
"""Tried in this order, first by the PATH of the login shell. Python 3.6 or later is needed."""
_PLAIN_PATH = re.compile(r"/[\w./+-]{1,200}", re.ASCII)

# All text below is words and single-quoted text alone, so that sh, csh and fish read the same: no exclamation mark, no
# backslash. Programs in Python stand in double quotes within it: no quote, no dollar.
_NO_PYTHON = "doctor-no-python"
_CHECK_VERSION = "import os,sys;sys.version_info<(3,6)and sys.exit(repr(sys.version_info));"
# Not a byte more than asked for: what comes behind is the program's own to read.
_READ = "r=lambda n,d=bytes():d if len(d)==n else r(n,d+(os.read(0,n-len(d))or sys.exit(3)));"
_AS_ROOT = "s=; [ $(id -u) = 0 ] || s=$(echo sudo -n); "


def stdin_program(source: bytes, request_length: int | str, packed: bool = False) -> str:
    """Python that reads a program and its request from stdin, and calls ``main(request, source)``.

    ``packed``: the program is sent as zlib packs it.
    """
    text, unpack = ("zlib.decompress(s)", "import zlib;") if packed else ("s", "")
    return f"{_CHECK_VERSION}{unpack}{_READ}s=r({len(source)});exec({text});main(r({request_length}),s)"


def stdin_script(
    source: bytes, request_length: int | str, as_root: bool = False, packed: bool = False, candidate: str = ""
) -> str:
    """The text for ``sh -c`` that finds an interpreter and starts a program from stdin."""
    start = f'exec {"$s " if as_root else ""}$p -I -S -c "{stdin_program(source, request_length, packed)}"'
    return f"{_AS_ROOT if as_root else ''}{_find(start, candidate)}; echo {_NO_PYTHON} >&2; exit 127"


def stdin_command(
    source: bytes,
    request_length: int,
    interpreter: str = "",
    prefix: Sequence[str] = (),
    as_root: bool = False,
    packed: bool = False,
    candidate: str = "",
) -> str:
    """The command for a login shell that starts a program, which is then sent as ``source`` and its request.

    Args:
        source: the program.
        request_length: bytes that it reads first.
        interpreter: the path of the one to use; empty finds one.
        prefix: words put before the command, to start it in a container.
        as_root: by ``sudo -n``, if the login user is not root.
        packed: the program is sent as zlib packs it.
        candidate: the path of one that is tried last, such as that of the job; left out where it is no plain path.
    """
    if interpreter:
        start = f'{shlex.quote(interpreter)} -I -S -c "{stdin_program(source, request_length, packed)}"'
    else:
        start = f"sh -c '{stdin_script(source, request_length, as_root, packed, candidate)}'"
    return " ".join(["exec", *map(shlex.quote, prefix), start])


def argument_command(source: bytes) -> list[str]:
    """The arguments of a process that runs a program which they hold themselves, calls ``main()``, and exits with 0."""
    program = f"{_CHECK_VERSION}import base64,zlib;exec(zlib.decompress(base64.b64decode(sys.argv[1])));main()"
    find = _find(f"{{ $p -I -S -c '{program}' \"$1\"; exit 0; }}")
    text = base64.b64encode(zlib.compress(source, 9)).decode("ascii")
    return ["/bin/sh", "-c", f"{find}; echo {_NO_PYTHON} >&2; exit 0", "sh", text]


def _find(start: str, candidate: str = "") -> str:
    names = f"{INTERPRETERS} {candidate}" if _PLAIN_PATH.fullmatch(candidate) else INTERPRETERS
    return f"for p in {names}; do command -v $p >/dev/null 2>&1 && {start}; done"


def python_problem(stderr: str) -> str:
    """Why no interpreter of a host could run a program, by what came on stderr; empty if one could.

    >>> python_problem("doctor-no-python")
    'there is no python3 on the host'
    """
    version = re.search(r"sys\.version_info\(major=(\d+), minor=(\d+)", stderr)
    if version:
        return f"python3 is version {version[1]}.{version[2]}; 3.6 or later is needed"
    return "there is no python3 on the host" if _NO_PYTHON in stderr else ""


_PACKAGE = Path(__file__).parents[1]
_OUR_IMPORT = re.compile(r"^from (doctor[\w.]+) import", re.MULTILINE)


def assemble(*modules: str) -> str:
    """The text of a program: these modules, each behind those that it imports.

    A triple-quoted string that begins a line is taken for a docstring, so that a function or class that has only one
    needs a ``pass`` behind it.

    >>> "def exit_code" in assemble("doctor.remote.runtime.processes")
    True
    """
    imports: set[str] = set()
    lines = [line for text in joined_modules(*modules).values() for line in _code_lines(text, imports)]
    # `import _socket as socket` first: where another module imports the whole one, that counts for all.
    return dense("".join(sorted(lines, key=lambda line: not line.startswith("import _"))))


_LOOSE = re.compile(r"^ *(?:#.*)?\n|  # .*$", re.MULTILINE)
_INDENT = re.compile(r"^(?: {4})+", re.MULTILINE)


def dense(text: str) -> str:
    r"""Source without comments and empty lines, indented by one space.

    >>> dense("if a:  # sure\n    # Then b.\n\n    b()\n")
    'if a:\n b()\n'
    """
    return _INDENT.sub(lambda spaces: " " * (len(spaces[0]) // 4), _LOOSE.sub("", text))


def joined_modules(*modules: str) -> dict[str, str]:
    """The source of each module of a program by its dotted name, in the order in which they are joined.

    >>> [*joined_modules("doctor.remote.runtime.processes")]
    ['doctor.remote.runtime.signals', 'doctor.remote.runtime.processes']
    """
    joined: dict[str, str] = {}
    for module in modules:
        _join(module, joined)
    return joined


def _join(module: str, joined: dict[str, str]) -> None:
    if module not in joined:
        text = read_module(module)
        for imported in _OUR_IMPORT.findall(text):
            _join(imported, joined)
        joined[module] = text


def read_module(module: str) -> str:
    """The source of a module of doctor, by its dotted name."""
    return _PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text("utf-8")


_UNSENT = re.compile(r'^ *"""(?:[^"]|"(?!""))*"""\n|^from doctor[^\n(]*(?:\([^)]*\))?\n', re.MULTILINE)
"""Docstrings, and imports of our own."""


def _code_lines(text: str, imports: set[str]) -> Iterator[str]:
    """The lines that do something; ``imports`` are those that the program has already, and is added to."""
    for line in _UNSENT.sub("", text).splitlines(keepends=True):
        if not (line.startswith("import ") and line in imports):
            imports.add(line)
            yield line
