"""What questions find on a host without the standard library's slow modules: the same as these find."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from doctor.remote.runtime.notation import to_json
from doctor.remote.runtime.processes import run_tool
from doctor.remote.runtime.reading import find_interpreter, find_tool, matches, matching_paths
from tests.facts.garbage import JSON

ROOT = Path(__file__).parents[2]
NAMES = st.text(alphabet="ab.-19", min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))
PATTERNS = st.lists(st.sampled_from(["a", "b", ".", "-", "1", "*", "[0-9]"]), min_size=1, max_size=6).map("".join)


@given(st.lists(NAMES, max_size=6), PATTERNS)
def test_a_pattern_matches_what_glob_matches(names: list[str], pattern: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            Path(folder, name).touch()
        assert matching_paths(f"{folder}/{pattern}") == sorted(glob.glob(f"{folder}/{pattern}"))


@pytest.mark.parametrize(
    "pattern", ["/proc/sys/net/ipv4/*/all/rp_filter", "/proc/[0-9]*/comm", "/etc/*/../passwd", "/no/*"]
)
def test_patterns_in_folders(pattern: str) -> None:
    expected = {path for path in glob.glob(pattern) if f"/{os.getpid()}/" in path or "[" not in pattern}
    assert expected <= set(matching_paths(pattern))


def test_a_name_with_a_newline_is_no_digit() -> None:
    assert not matches("davinci\n", "davinci[0-9]*")


@pytest.mark.parametrize("name", ["sh", "no-such-tool", "/bin/sh", "/etc/passwd", "bin"])
def test_a_tool_is_found_where_which_finds_it(name: str) -> None:
    path = "/nowhere:/:/usr/bin:/bin"
    assert find_tool(name, path) == shutil.which(name, path=path)


@given(JSON)
@example(float("inf"))
@example([float("-inf")])
def test_json_is_read_as_what_it_was(value: Any) -> None:
    assert json.loads(to_json(value)) == json.loads(json.dumps(value))


def test_a_value_that_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes is not JSON"):
        to_json([b"x"])


def test_a_tool_ends_with_code_and_both_outputs() -> None:
    program = "import sys; sys.stdout.write('o' * 200000); sys.stderr.write('e' * 200000); sys.exit(3)"
    assert run_tool([sys.executable, "-c", program], {}, 60) == (3, b"o" * 200000, b"e" * 200000)


def test_a_tool_that_is_late_is_ended() -> None:
    with pytest.raises(OSError, match="no answer in 0"):
        run_tool(["/bin/sleep", "1000"], {}, 0.2)


def test_a_byte_that_is_not_utf_8_is_replaced() -> None:
    assert json.loads(to_json({"a\udcff": ["b\udcfe\ud800", "\U0001f600 \\udcff"]})) == {
        "a?": ["b??", "\U0001f600 \\udcff"]
    }


HIDDEN = """\
import json, sys
sys.path.insert(0, sys.argv[1])
from doctor.collect.collector.host_files import path_error, read_file
from doctor.facts.accelerators import detect_accelerators
from doctor.facts.gpu import detect_gpus
from doctor.facts.pcie_links import detect_iommu
from doctor.facts.npu import detect_npus
ends = {}
for function in (detect_accelerators, detect_gpus, detect_iommu, detect_npus):
    try:
        function({})
        ends[function.__name__] = "read"
    except OSError as error:
        ends[function.__name__] = "unreadable"
for path in ("/sys/class/infiniband", "/nothing"):
    ends[path] = path_error(path)["ended"]
ends["file"] = read_file("/sys/class/infiniband/mlx5_0/node_guid", 10)["ended"]
print(json.dumps(ends))
"""
DETECTIONS = ("detect_accelerators", "detect_gpus", "detect_iommu", "detect_npus")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")
@pytest.mark.parametrize(
    ("hide", "detected", "path"),
    [
        ("mount -t tmpfs none /sys", "unreadable", "error"),
        ("mount -t tmpfs none /sys; mkdir /sys/kernel", "read", "absent"),  # a machine without a PCI bus
        ("true", "read", "absent"),
    ],
)
def test_devices_of_a_host_without_sys_are_not_known(hide: str, detected: str, path: str) -> None:
    argv = ["unshare", "--mount", "sh", "-c", f'{hide}; exec "$0" -c "$1" "$2"', sys.executable, HIDDEN, str(ROOT)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    ends = json.loads(done.stdout)
    assert {ends[name] for name in DETECTIONS} == {detected}
    assert (ends["/sys/class/infiniband"], ends["file"], ends["/nothing"]) == (path, path, "absent")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give it up")
def test_folders_of_sys_that_are_closed_are_not_empty() -> None:
    """As hardened distributions close them for all but root."""
    program = "import os, sys; sys.path.insert(0, sys.argv[1])\n"
    program += "from doctor.remote.runtime.reading import matching_paths\nos.setuid(65534)\n"
    program += "try:\n    print(matching_paths('/sys/bus/pci/devices/*/vendor'))\n"
    program += "except PermissionError:\n    print('closed')"
    hide = "mount -t tmpfs none /sys; mkdir -p /sys/bus/pci/devices; chmod 700 /sys/bus"
    argv = ["unshare", "--mount", "sh", "-c", f'{hide}; exec "$0" -c "$1" "$2"', sys.executable, program, str(ROOT)]
    assert subprocess.run(argv, capture_output=True, text=True).stdout == "closed\n"


def test_an_interpreter_is_a_file_or_a_command_line_and_no_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    (first / "python3").mkdir(parents=True)  # a folder of that name in a folder of the PATH
    for program in (second / "python3", second / "conda", second / "my python"):
        program.parent.mkdir(exist_ok=True)
        program.write_text("")
        program.chmod(0o755)
    path = f"{first}:{second}"
    assert find_interpreter("", path) == [str(second / "python3")]
    assert find_interpreter("conda run -n 'e 1' python", path) == [str(second / "conda"), "run", "-n", "e 1", "python"]
    assert find_interpreter(str(second / "my python"), path) == [str(second / "my python")]
    assert find_interpreter("missing run", path) is None
    assert find_interpreter("it's not quoted", path) is None


def test_without_python3_the_interpreter_is_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "doctor.remote.runtime.reading.find_tool", lambda name, path: "/x/python" if name == "python" else None
    )
    assert find_interpreter("", "") == ["/x/python"]
    assert find_interpreter("python3", "") is None
