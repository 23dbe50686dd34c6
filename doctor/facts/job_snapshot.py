"""All packages of the job's Python, the compiled libraries that it would load, and sources that somebody edited."""

from __future__ import annotations

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.texts import filled
from doctor.facts.python_env import ask_interpreter

LIST_EVERYTHING = r"""
import base64, hashlib, os, sys, time
end, seen, packages, libraries, cut = time.monotonic() + 12, set(), {}, {}, False
HEAD, MOST_FILES, MOST_SOURCES = 65536, 4000, 60000
NAMES = ("nccl", "nccl-net", "rccl", "hccl", "hccl_alg", "hccl_plf", "ascendcl", "ascend_hal", "runtime", "ge_runner",
    "cuda", "cudart", "cublas", "cudnn", "nvidia-ml", "nvidia-ptxjitcompiler", "mpi", "pmix", "ucp", "uct", "ucs",
    "fabric", "ibverbs", "mlx5", "rdmacm", "psm2", "gloo", "jemalloc", "tcmalloc", "tcmalloc_minimal", "c", "stdc++")
PLACES = ["/usr/lib64", "/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/lib",
    "/usr/local/cuda/lib64", "/usr/local/Ascend/driver/lib64/driver", "/usr/local/Ascend/driver/lib64/common"]
def digest(path):
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        size = os.fstat(handle).st_size
        total = hashlib.sha256(str(size).encode())
        for place in sorted(set([0, max(0, size // 2 - HEAD // 2), max(0, size - HEAD)])):
            os.lseek(handle, place, 0)
            total.update(os.read(handle, HEAD))
        return total.hexdigest()[:12]
    except OSError:
        return ""
    finally:
        os.close(handle)
def add(name, path):
    global cut
    real = os.path.realpath(path)
    if real in seen:
        return
    if len(seen) >= MOST_FILES or time.monotonic() > end:
        cut = True
        return
    seen.add(real)
    found = digest(real)
    if found:
        libraries.setdefault(name, []).append(os.path.basename(real) + " " + found)
records = {}
def record_lines(path):
    path = os.path.realpath(path)
    if path not in records:
        try:
            with open(path, errors="replace") as record:
                records[path] = record.read(8 << 20).splitlines()
        except OSError:
            records[path] = []
    return records[path]
def compiled(name):
    return name.endswith(".so") or ".so." in name
for folder in sys.path[1:]:
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        continue
    for entry in entries:
        stem, dot, end_of_name = entry.rpartition(".")
        if end_of_name in ("dist-info", "egg-info") and stem:
            name, dash, version = stem.partition("-")
            version = version.split("-")[0]
            key = name.replace("_", "-").lower()
            packages.setdefault(key, version or "no version")
            for line in record_lines(os.path.join(folder, entry, "RECORD")):
                path = line.split(",", 1)[0]
                if compiled(path):
                    add(key, os.path.join(folder, path))
        elif end_of_name == "pth" or entry in ("sitecustomize.py", "usercustomize.py"):
            add(entry, os.path.join(folder, entry))
        elif compiled(entry) and "lib-dynload" not in folder:
            add(entry.split(".")[0], os.path.join(folder, entry))
named = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")][:32]
wanted = tuple("lib" + name + ".so" for name in NAMES)
for folder in named + PLACES:
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        continue
    for entry in entries:
        stem = entry.split(".so")[0] + ".so"
        if stem in wanted and compiled(entry) and stem not in libraries:
            add(stem, os.path.join(folder, entry))
for name, version in packages.items():
    print("doctor package " + ascii(name)[1:-1].replace(" ", "_") + " " + ascii(version)[1:-1])
for name, files in sorted(libraries.items()):
    total = hashlib.sha256("\n".join(sorted(files)).encode("utf-8", "replace")).hexdigest()[:12]
    words = files[0] if len(files) == 1 else "%d files %s" % (len(files), total)
    print("doctor library " + ascii(name)[1:-1].replace(" ", "_") + " " + ascii(words)[1:-1])
until, looked, cut_sources = time.monotonic() + 8, 0, False
standard = os.path.dirname(os.path.realpath(os.__file__))
def bounded():
    global looked, cut_sources
    looked += 1
    cut_sources = cut_sources or looked > MOST_SOURCES or time.monotonic() > until
    return not cut_sources
def is_edited(path, fields, since):
    try:
        state = os.stat(path)
        if fields[2].strip() == str(state.st_size) and state.st_mtime <= since or state.st_size > 16 << 20:
            return False
        with open(path, "rb") as source:
            total = base64.urlsafe_b64encode(hashlib.sha256(source.read()).digest()).decode().rstrip("=")
    except OSError:
        return False
    return fields[1] != "sha256=" + total
def tell(kind, name, files):
    total = hashlib.sha256("\n".join(sorted(digest(path) for path in files)).encode()).hexdigest()[:12]
    words = os.path.basename(files[0]) if len(files) == 1 else "%d files" % len(files)
    print("doctor " + kind + " " + ascii(name)[1:-1].replace(" ", "_") + " " + ascii(words)[1:-1] + " " + total)
def below(top):
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name[0] not in "._" and folder.count("/") < top.count("/") + 6)
        for name in sorted(names):
            if (name.endswith(".py") or compiled(name)) and bounded():
                yield os.path.join(folder, name)
        if cut_sources:
            return
for folder in dict.fromkeys(os.path.realpath(folder) for folder in sys.path[1:]):
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        continue
    owned = set()
    for entry in entries:
        if not entry.endswith(".dist-info"):
            continue
        record = os.path.join(folder, entry, "RECORD")
        rows = [line.rsplit(",", 2) for line in record_lines(record)]
        try:
            since = os.stat(record).st_mtime  # an installer writes it last
        except OSError:
            continue
        owned.update(row[0].split("/")[0] for row in rows)
        paths = [row for row in rows if len(row) == 3 and row[0].endswith(".py") and row[1].startswith("sha256=")]
        files = [os.path.join(folder, row[0]) for row in paths if bounded()
            and is_edited(os.path.join(folder, row[0]), row, since)]
        if files:
            tell("edited", entry.partition("-")[0].replace("_", "-").lower(), files)
    if folder == standard or folder.startswith(standard + "/lib-"):
        continue
    for entry in entries:
        path = os.path.join(folder, entry)
        if entry not in owned and entry[0] not in "._" and (entry.endswith(".py") or "." not in entry):
            files = [path] if os.path.isfile(path) and entry.endswith(".py") else list(below(path))
            if files:
                tell("source", entry, files)
print("doctor " + ("cut" if cut_sources else "whole") + " sources")
print("doctor " + ("cut" if cut else "whole"))
"""
"""Runs in the job's interpreter, Python 3.6 and later; imports nothing that Python itself does not bring.

Of a library's file it digests the size, and 64 KiB at its beginning, middle and end: a rebuild changes one of them.
A source of an installed package is read only where its size or its time says that somebody may have edited it.
"""


def list_job(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: all packages of the job's interpreter, and digests of compiled libraries."""
    answer, lines = ask_interpreter(arguments, LIST_EVERYTHING, 30, ("cut", "whole"))
    if not lines:
        return answer
    answer.update(whole=lines[-1][1] == "whole", package={}, library={}, edited={}, source={})
    answer["whole_sources"] = ["doctor", "whole", "sources"] in lines
    for fields in lines[:8000]:
        if len(fields) == 4 and fields[1] in answer and isinstance(answer[fields[1]], dict):
            answer[fields[1]][fields[2][:100]] = fields[3][:100]
    return answer


class JobSnapshot(Fact, frozen=True):
    """All packages of the job's Python, and digests of the compiled libraries that it would load.

    Raw output, as JSON::

        {"path": "/usr/bin/python3", "whole": true, "package": {"torch": "2.7.1", "numpy": "1.26.4"},
         "library": {"torch": "31 files 0a1b2c3d4e5f", "libnccl.so": "libnccl.so.2.21.5 5f4e3d2c1b0a"},
         "whole_sources": true, "edited": {"transformers": "trainer.py 1b2c3d4e5f60"},
         "source": {"megatron": "311 files 2c3d4e5f6071"}}
    """

    probe = ask(list_job, job=True, timeout=40)

    path: str
    """The interpreter."""
    packages: dict[str, str]
    """Versions, by the package's name in lower case with ``-`` for ``_``."""
    libraries: dict[str, str] | None
    """By package, or by the library's name such as ``libnccl.so``: file and digest, or how many files and the digest of
    all. None: there were too many to be read in time."""
    sources: dict[str, str] | None = None
    """Digests of files of installed packages that were edited, and of sources that no package brought. None: not read,
    or too many."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> JobSnapshot:
        data = answer.json()
        if not data["path"]:
            raise Absent("the job's Python is not on the host")
        if "error" in data:
            raise Unreadable(filled("{0}: {1}", data["path"], data["error"]))
        texts = {
            key: msgspec.convert(data.get(key, {}), dict[str, str])
            for key in ("package", "library", "edited", "source")
        }
        edited = {filled("edited files of {0}", name): files for name, files in texts["edited"].items()}
        return cls(
            str(data["path"]),
            texts["package"],
            texts["library"] if data["whole"] else None,
            {**edited, **texts["source"]} if data.get("whole_sources") else None,
        )
