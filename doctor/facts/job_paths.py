"""Files and folders that the job's launch line needs on every host."""

from __future__ import annotations

import os
import stat

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.job.launch_line.options import values_of
from doctor.remote.runtime.processes import run_tool
from doctor.remote.runtime.reading import find_interpreter, interpreter_of


def _is_absence(error: OSError) -> bool:
    return isinstance(error, (FileNotFoundError, NotADirectoryError))


def _state(path: str) -> str:
    try:
        os.stat(path)
    except OSError as error:
        return "missing" if _is_absence(error) else str(error.strerror)
    return "there"


_GPU_FILES = ("nvidia", "kfd", "dxg", "nvmap", "nvhost", "renderD", "davinci", "mx", "mt")
"""Beginnings of device files. A host whose torch may see a GPU has one; also those of vendors that it calls cuda."""
_LOADED_BY_TORCH = """
ast asyncio base64 binascii bisect cmath collections concurrent contextlib contextvars copy copyreg ctypes dataclasses
datetime dis email enum fnmatch functools gettext glob heapq http importlib inspect json keyword linecache logging math
mmap multiprocessing numbers opcode operator pathlib pickle platform pprint queue quopri random re reprlib select
selectors signal socket ssl string struct subprocess tempfile textwrap threading timeit token tokenize traceback types
typing unittest urllib warnings weakref zlib
"""
"""Modules of Python in whose place an empty file ends ``import torch.distributed``: PyTorch 2.13, each was tried."""
FIND_MODULES = """
import sys
has_folder = sys.path[:1] == [""]
del sys.path[: int(has_folder)]
import ast, io, os, tokenize
name, program, *needs = sys.argv[1:]
folder = os.path.dirname(os.path.realpath(program)) if program else os.getcwd()
if has_folder:
    sys.path.insert(0, folder)
else:
    folder = os.sep
def find(name):
    path, done = None, []
    for part in name.split("."):
        if done and path is None:
            return None
        done.append(part)
        finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
        specs = [finder.find_spec(".".join(done), path) for finder in finders]
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    return spec
def imports(node):
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom) and not node.level:
        names = [node.module]
    return [name.split(".")[0] for name in names]
def is_sure(node):
    value = getattr(node, "value", None)
    is_text = isinstance(node, ast.Expr) and isinstance(getattr(value, "value", getattr(value, "s", None)), str)
    return is_text or isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))
def names_in(path, is_whole):
    with open(path, "rb") as file:
        tree = ast.parse(file.read(1 << 20))
    nodes = list(ast.walk(tree)) if is_whole else tree.body
    found = [getattr(node, "name", None) or getattr(node, "id", None) for node in nodes]
    found += [alias.asname or alias.name for node in nodes for alias in getattr(node, "names", [])
              if isinstance(alias, ast.alias) and is_whole]
    return {text for text in found if text and not text.startswith("_")}
def is_own(origin):
    return origin.endswith(".py") and origin.startswith(folder + os.sep) and "-packages" not in origin
def state_of_names(node):
    names = [alias.name for alias in node.names if not alias.name.startswith("_")]
    origin = getattr(find(node.module), "origin", None) or ""
    if "*" in names or not is_own(origin):
        return {}
    with open(origin, "rb") as file:
        text = file.read(1 << 20)
    if any(word in text for word in (b"__getattr__", b"globals(", b"vars(", b"exec(", b"sys.modules", b"import *")):
        return {}
    try:
        has = names_in(origin, True)
    except SyntaxError:
        return {}
    own = {name: node.module + "." + name for name in names}
    return {path: "there" if name in has or find(path) else "missing" for name, path in own.items()}
calls, loaded, workers, defaults = {}, [], [], {}
constant = lambda node: getattr(node, "value", getattr(node, "n", getattr(node, "s", None)))
def note_calls(node, inside, needs):
    if isinstance(node, ast.FunctionDef):
        returns = [part for top in node.body if isinstance(top, ast.If) for part in ast.walk(top)]
        inside, needs = node.name, {"?"} if any(isinstance(part, ast.Return) for part in returns) else set()
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        calls.setdefault(name, []).append(needs)
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if name == "DataLoader":
            workers.extend(node.args[5:6] or [given[key] for key in ("num_workers",) if key in given])
        if name == "add_argument" and node.args:
            defaults[str(constant(node.args[-1])).lstrip("-").replace("-", "_")] = constant(given.get("default", node))
        parts = [getattr(part, "attr", "") for value in node.args[:1] for part in ast.walk(value)]
        loaded.extend((inside, part, needs) for part in parts if part and name in ("load", "load_file"))
    test, branch = getattr(node, "test", None), needs
    if isinstance(node, (ast.Try, ast.IfExp, ast.While)):
        branch = needs | {"?"}
    elif isinstance(node, ast.If) and getattr(getattr(test, "left", None), "id", "") != "__name__":
        is_given = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot)
        branch = needs | {getattr(test.left if is_given else test, "attr", "?")}
    others = node.orelse if isinstance(node, ast.If) else []
    for child in ast.iter_child_nodes(node):
        note_calls(child, inside, needs | {"?"} if child in others else branch)
states, sure = {}, True
try:
    if name:
        spec = find(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find(name + ".__main__")
        print("there" if spec else "missing", "-m", name)
        program = getattr(spec, "origin", None)
    files, firm = [program], [program]
    for path in files:
        with open(path, "rb") as file:
            text = file.read(1 << 20)
        try:
            if path == program and not name:  # of a module it takes any byte in a comment
                text.decode(tokenize.detect_encoding(io.BytesIO(text).readline)[0])
            tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError):
            if path in firm and len(text) < 1 << 20:
                print("broken", path)
            if path == program:
                raise
            continue
        try:
            note_calls(tree, "", set())
        except RecursionError:
            calls[""] = [{"?"}]
        for node in tree.body:
            sure = sure and is_sure(node)
            states.update(state_of_names(node) if sure and isinstance(node, ast.ImportFrom) and not node.level else {})
            for module in imports(node):
                if module in states:
                    continue
                spec = sys.modules.get(module) or find(module)
                states[module] = "there" if spec else "missing" if sure else "elsewhere"
                origin = getattr(spec, "origin", None) or ""
                if is_own(origin):
                    files += [origin] if len(files) < 32 else []
                    firm += [origin] if sure else []
                    sure = False
except Exception:
    pass
try:
    own = os.path.dirname(os.__file__)
    first = [os.path.realpath(part) for part in [folder, *os.environ.get("PYTHONPATH", "").split(":")] if part]
    for module in SHADOWED.split() if "torch" in states or needs else ():
        origin = getattr(find(module), "origin", None) or ""
        home = os.path.dirname(origin[:-12] if origin.endswith("/__init__.py") else origin)
        if not origin.endswith(".py") or os.path.realpath(home) not in first or home == own or "-packages" in home:
            continue
        real = [os.path.join(own, module + end) for end in (".py", os.sep + "__init__.py")]
        real = [path for path in real if os.path.exists(path)]
        needed = names_in(real[0], False) if real else set()
        has = names_in(origin, True)
        if "*" not in has and 2 * len(needed & has) <= len(needed):
            print("shadowed", origin)
    torch = find("torch") if "torch" in states else None
    origin = getattr(torch, "origin", None) or ""
    if origin.startswith(folder + os.sep) and "-packages" not in origin and find("torch.distributed") is None:
        print("shadowed", origin)
    for module in needs:
        states[module] = "there" if find(module) else "missing"
except Exception:
    pass
for path in files[not name:] if states and files[0] else ():
    print("beside", os.path.relpath(path, folder))
for value in workers:
    option, number = getattr(value, "attr", ""), defaults.get(getattr(value, "attr", ""), constant(value))
    print("workers", option + "=" + (str(number) if isinstance(number, int) else "?"))
for inside, part, needs in loaded:
    callers = calls.get(inside, [set()] if not inside else [{"?"}]) + calls.get("", [])
    if all(found <= {part} for found in [needs] + callers):
        print("loads", part)
for module in sorted(states):
    print(states[module], "import", module)
""".replace("SHADOWED", repr(" ".join(_LOADED_BY_TORCH.split())))
"""As ``python -m NAME``, else the file ``program``, looks for its module and for what it imports first; imports none.

What it cannot follow is taken for there. Where other statements, or modules beside the program, come before an import,
they may change where Python looks: what is not found then is elsewhere, and what is found is not ``firm``. ``needs``:
modules of the launcher. A file that Python takes for a module of its own, which torch imports first, is shadowed,
unless it has half of its names. loads: attributes, as of ``args``, whose file each rank loads: around the call, and
around those of its function, stands no ``try`` and no test but that it is given. workers: as in `JobProgram`.
"""
_MOST_IMPORTS = 200


def _states_of_modules(
    environ: dict[str, str], program: str, launcher: str, module: str, folder: str, *needs: str
) -> dict[str, str]:
    """By the interpreter of a launcher; empty where that is not sure."""
    folders = environ.get("PYTHONPATH", "").split(":") if not os.path.isabs(folder) else []
    if any(part and not os.path.isabs(part) for part in folders):
        return {}
    tool = (find_interpreter(launcher) or [""])[0]
    python = tool if os.path.basename(tool).startswith("python") else interpreter_of(tool)
    if not os.path.basename(python).startswith("python") or not os.access(python, os.X_OK):
        return {}
    start = ["/bin/sh", "-c", 'cd -- "$0" && exec "$@"', folder or "/", python, "-c", FIND_MODULES, module, program]
    code, out, _ = run_tool([*start, *needs], dict(os.environ, **environ), 18)
    lines = [line.split(" ", 1) for line in out.decode("utf-8", "replace").splitlines()[:_MOST_IMPORTS]]
    return {fields[1]: fields[0] for fields in lines if len(fields) == 2} if not code else {}


def _state_of_started(path: str) -> str:
    """Whether the kernel runs a program: its mode, and the interpreter that its first line names."""
    if not os.access(path, os.X_OK):
        return "not executable"
    interpreter = interpreter_of(path)
    if interpreter:
        return "there" if os.path.exists(interpreter) else "without interpreter"
    return "text" if _is_text(path) else "there"


def _is_text(path: str) -> bool:
    """Whether a file begins as text, without ``#!``: the kernel refuses it (ENOEXEC), and a shell reads it itself."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            beginning = file.read(256)
    except OSError:
        return False
    return not beginning.startswith(b"#!") and beginning.isascii() and b"\0" not in beginning


def _state_of_output(path: str) -> str:
    """Whether a folder can be made there."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        return "there" if stat.S_ISDIR(os.stat(path).st_mode) and os.access(path, os.W_OK | os.X_OK) else "blocked"
    except OSError as error:
        return "blocked" if _is_absence(error) else str(error.strerror)


def _state_of_results(path: str) -> str:
    """Whether a file of this name can be written, or a folder made or written to."""
    is_folder = not os.path.isfile(path) or "." not in os.path.basename(path)
    state = _state_of_output(path if is_folder else os.path.dirname(path))
    return "closed" if state == "blocked" else state


def _state_of_input(path: str) -> tuple[str, str]:
    """Of what the program reads, and its kind and size. Megatron-LM names the files of a dataset without their end."""
    try:
        info = os.stat(path if os.path.exists(path) else path + ".idx")
    except OSError as error:
        return "absent" if _is_absence(error) else str(error.strerror), ""
    if not os.access(path, os.R_OK) and os.path.exists(path):
        return "refused", ""
    if stat.S_ISDIR(info.st_mode):
        return "there", "folder"
    if not stat.S_ISREG(info.st_mode):
        return "special", ""
    tensors = _tensors_in(path, info.st_size) if path.endswith((".pt", ".pth", ".bin", ".ckpt", ".safetensors")) else ""
    if tensors and tensors != "damaged":
        return "there", "file of " + str(info.st_size) + " bytes, tensors " + tensors
    return tensors or ("there" if info.st_size else "empty"), "file of " + str(info.st_size) + " bytes"


def _tensors_in(path: str, size: int) -> str:
    """A checksum of the tensors that a checkpoint lists; damaged: its end is missing; empty: it is of another kind."""
    import json
    import zipfile
    import zlib

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            head = file.read(9)
            if head.startswith(b"PK\3\4"):
                file.seek(max(0, size - (1 << 16) - 98))
                tail = file.read((1 << 16) + 98)
                end, long = tail.rfind(b"PK\5\6"), tail.rfind(b"PK\6\6")
                if end < 0:
                    return "damaged"
                table = tail[long + 40 : long + 48] if long >= 0 else tail[end + 12 : end + 16]
                if int.from_bytes(table, "little") > 1 << 23:
                    return ""
                with zipfile.ZipFile(file) as archive:
                    rows = [(entry.filename.partition("/")[2], entry.file_size) for entry in archive.infolist()]
                text = repr(sorted(row for row in rows if row[0].startswith("data/"))).encode()
            else:
                length = int.from_bytes(head[:8], "little") if path.endswith(".safetensors") else size
                file.seek(8)
                text = file.read(length) if length < min(size, 1 << 23) else b""
                ends = [part["data_offsets"][1] for part in json.loads(text.decode()).values() if "dtype" in part]
                if 8 + length + max(ends, default=0) > size:
                    return "damaged"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, zipfile.BadZipFile):
        return ""
    return f"{zlib.crc32(text):08x}"


_UNUSABLE = ("without interpreter", "text", "broken", "shadowed", "without code")


def _code_checksum(path: str) -> str:
    """Of a program's lines but comments and empty ones; none: it has none; empty: not readable, or above 1 MiB."""
    import hashlib

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            text = file.read((1 << 20) + 1)
    except OSError:
        return ""
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(b"#")]
    checksum = hashlib.sha256(b"\n".join(lines)).hexdigest() if lines else "none"
    return checksum if len(text) <= 1 << 20 else ""


def _states_at_start(arguments: ProbeArguments, path: str, state: str) -> dict[str, str]:
    """Of modules, of the launcher, and of modules beside the program, which are beside."""
    module = arguments.get("module", ())
    environ = dict(arguments.get("environ", {}))
    is_by_shell = "." in arguments.get("likely", [])
    if is_by_shell:
        environ.pop("PYTHONPATH", None)  # that of the caller's shell
    is_there = module and (module[1] or state == "there")
    states = _states_of_modules(environ, path, *module) if is_there else {}
    if module and is_by_shell:
        tool = (find_interpreter(module[0]) or [""])[0]
        states[module[0]] = _state_of_started(tool) if tool else "missing"
    return states


def _add_data(arguments: ProbeArguments, files: dict[str, str], texts: dict[str, str]) -> None:
    """What the program reads, where it writes, and where its launcher writes logs."""
    if arguments.get("output"):
        files[arguments["output"]] = _state_of_output(arguments["output"])
    for name in arguments.get("inputs", []):
        files[name], texts[name] = _state_of_input(name)
    for name in arguments.get("results", []):
        if name not in arguments.get("likely", []) or os.path.isdir(os.path.dirname(name)):
            files[name] = _state_of_results(name)


def find_program(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: whether the file that the launch line starts, and those that it names, are there for the job.

    A file may also be meant beside the program. Python starts a folder only by its ``__main__.py``.

    ``likely``: paths in the caller's folder, or ``.``: a shell on each host starts the line, perhaps in another folder.
    What is not there may be elsewhere.
    """
    path = arguments.get("program", "")
    names = arguments.get("files", [])
    beside = {name: os.path.join(os.path.dirname(path), os.path.basename(name)) for name in names if path}
    files = {name: "there" if _state(beside.get(name, name)) == "there" else _state(name) for name in names}
    state = _state(path)
    if state == "missing" and any(files[name] == "missing" and path.startswith(name + "/") for name in names):
        state = "elsewhere"  # the shell that cannot change to the folder may find it in its own
    if state == "there" and os.path.isdir(path) and _state(os.path.join(path, "__main__.py")) == "missing":
        state = "folder"
    if state == "there" and arguments.get("is_started"):
        state = _state_of_started(path)
    files.update(_states_at_start(arguments, path, state))
    likely = arguments.get("likely", [])
    unsure = [*likely, *(name for name in files if "." in likely and not name.startswith("/"))]
    files.update({name: "elsewhere" for name in unsure if files.get(name) == "missing"})
    if path in likely and state == "missing":
        state = "elsewhere"
    texts = {path: _code_checksum(path)} if state == "there" and path.endswith(".py") else {}
    state = "without code" if texts.get(path) == "none" else state
    for name in [name for name in files if files[name] == "beside"]:
        del files[name]
        own = os.path.join(os.path.dirname(path) or arguments["module"][2], name)
        texts[own] = _code_checksum(own)
    noted = {kind: [name for name in files if files[name] == kind] for kind in ("loads", "workers")}
    files = {name: state for name, state in files.items() if state not in noted}
    _add_data(arguments, files, texts)
    answer: dict[str, object] = {"path": path, "state": state, "files": files, "texts": texts, **noted}
    if arguments.get("counts_gpus"):
        folders = [folder for folder in ("/dev", "/dev/dri") if os.path.isdir(folder)]
        answer["has_gpus"] = any(name.startswith(_GPU_FILES) for folder in folders for name in os.listdir(folder))
    return answer


OF_DATA = ("absent", "refused", "special", "empty", "damaged", "closed")
"""States of what the program reads or writes to, which may matter to one rank alone."""
OF_LINE = ("program", "files", "module", "output", "inputs", "results", "counts_gpus", "likely")


class JobProgram(Fact, frozen=True):
    """The file that the launch line starts, the configurations that it names, and whether the host has them.

    Raw output, as JSON::

        {"path": "/work/train.py", "state": "missing", "files": {"/work/ds.json": "there"}}
    """

    probe = ask(find_program, job=True, only_with=OF_LINE)

    path: str = ""
    state: str = ""
    """there, missing, folder, not executable, without interpreter, text, broken, without code."""
    files: dict[str, str] = {}
    """The same by configuration, module (``-m NAME``), ``import NAME`` of program or launcher, which may also be
    elsewhere, file that is shadowed, as Python takes it for another one, and folder for logs, which is there or
    blocked. What the program reads is there or one of `OF_DATA`; what it writes to is there or closed."""

    texts: dict[str, str] = {}
    """The checksum of the lines of the program and of modules beside it, without comments; kind and size of what it
    reads."""
    loads: list[str] = []
    """Options whose file each rank loads: ``resume`` of ``torch.load(args.resume)``."""
    workers: list[str] = []
    """Of each DataLoader the option and its default: ``num_workers=4``; or ``=4``, ``=?``."""
    has_gpus: bool | None = None
    """Of a launch line that starts a rank for each GPU; None: another one."""

    def each_rank_loads(self, path: str, line: str) -> bool:
        """Whether the program loads a file on each rank that an option of its launch line names."""
        return any(path.endswith(value.removeprefix("./")) for value in values_of(line, self.loads))

    @property
    def states(self) -> dict[str, str]:
        return {**({self.path: self.state} if self.path else {}), **self.files}

    @classmethod
    def read(cls, answer: ProbeAnswer) -> JobProgram:
        program = msgspec.convert(answer.json(), cls)
        if not program.states and program.has_gpus is None:
            raise Absent("no launch line names the path of a program that every host must have")
        known = ("there", "missing", "folder", "blocked", "not executable", "elsewhere", *_UNUSABLE, *OF_DATA)
        for path, state in program.states.items():
            if state not in known:
                raise Unreadable(f"{path}: {state}")
        return program
