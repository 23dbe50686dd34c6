"""No advice is half a command: each one in a page or a signature parses as shell, and its options have their values."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.diagnose.signature import load_signatures

CHECKS = Path(__file__).parents[1] / "checks"
SECTIONS = re.compile(r"## (?:What to do|In a container)\n(.*?)(?=\n *## |\Z)", re.DOTALL)
CODE = re.compile(r"`([^`]+)`")
PROGRAM = re.compile(
    r"(?:ascend-dmi|awk|bash|cat|chmod|chown|chronyc|conda|cp|curl|dcgmi|df|dmesg|docker|doctor|"
    r"du|echo|env|ethtool|export|find|findmnt|firewall-cmd|free|getent|grep|hccn_tool|head|"
    r"hostname|ibstat|ibv_devinfo|ip|ipcrm|ipcs|ipmitool|iptables|journalctl|kill|kubectl|ldconfig|"
    r"ln|ls|lsmod|lspci|mkdir|mlxlink|modprobe|mount|mpirun|nc|nft|nfsstat|npu-smi|nvidia-smi|"
    r"perfquery|ping|pip|ps|ray|rm|sacct|sbatch|scontrol|sed|setfacl|sinfo|smartctl|srun|ss|"
    r"ssh|ssh-copy-id|stat|swapoff|sysctl|systemctl|tail|tc|timeout|torchrun|truncate|ulimit|"
    r"umount|unset) .*",
    re.DOTALL,
)
"""One of the programs that people start, with something behind it."""
HALF = re.compile(
    r"sbatch --[\w-]+|docker run(?: .*)? -{1,2}[A-Za-z][\w-]*|hccn_tool .*-\w+ -s|iptables -[ADICR]|nc(?: -\w+)+"
    r"|sysctl -w"
    r"|ethtool -\S+|smartctl -\w|(?:ssh \S+ )?ls -l\w*|(?:timeout \d+ )?stat -\w|chmod \S+|kill -\S+"
    r"|mpirun -(?!-(?:version|do-not-launch)$)\S+|srun (?!--version$|--mpi=list$)-[^=\s]+"
    r"|ssh(?: -o \S+)*|kubectl (?:drain|logs|delete pod)|doctor \w+ --(?:select|hosts|from|path|expect)|ping -\w"
    r"|.*\b(?:npu-smi|nvidia-smi|hccn_tool|dcgmi)\b.* -(?:i|id|c|t|r|ac|pl|pm)|modprobe|systemctl \w+|ip link set \S+"
    r"|tc qdisc del dev|pip install|python3? -m pip install|export|unset|mount -t \S+|mkdir -p|chown \S+"
)
"""Of a whole command: it ends before the value, file or name that it needs."""
WHOLE = re.compile(r".* --help|nvidia-smi .*-r|dcgmi .* -c")


def commands() -> Iterator[tuple[str, str]]:
    """Each command in what a page or a signature advises, with where it stands."""
    for signature in load_signatures().values():
        for text in (*signature.confirm, *signature.fix):
            yield from ((signature.id, code) for code in CODE.findall(text))
    for path in sorted(CHECKS.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and (page := ast.get_docstring(node)):
                for section in SECTIONS.findall(page):
                    yield from ((path.stem, " ".join(code.split())) for code in CODE.findall(section))


def filled_in(code: str) -> str:
    """With a word for each value that the reader, or the finding, fills in."""
    return re.sub(r"<[A-Za-z][^<>|&;]*>|\{[a-z_]+\}", "WORD", code)


ADVISED = sorted({(where, code) for where, code in commands() if PROGRAM.fullmatch(code)})


def test_there_are_commands() -> None:
    assert len(ADVISED) > 900


def test_each_command_is_whole_shell() -> None:
    """All in one script, each as a function; one by one where that does not parse."""
    scripts = [f"f() {{\n{filled_in(code)}\n}}\n" for _, code in ADVISED]
    if not parses("".join(scripts)):
        assert [row for row, script in zip(ADVISED, scripts, strict=True) if not parses(script)] == []


def test_no_command_ends_before_what_it_needs() -> None:
    assert [(w, code) for w, code in ADVISED if HALF.fullmatch(filled_in(code)) and not WHOLE.fullmatch(code)] == []


@pytest.mark.parametrize("code", ["nc -zv", "sbatch --mem", "hccn_tool -i 0 -ip -s", "sysctl -w", "ls -l", "mpirun -l"])
def test_half_a_command_is_found(code: str) -> None:
    assert HALF.fullmatch(code) and not WHOLE.fullmatch(code)


def parses(script: str) -> bool:
    return subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False).returncode == 0
