"""`doctor diagnose HOSTS --logs`: real hosts over SSH, whose logs are read there and judged here."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from tests.diagnose.test_command import SCHEMA
from tests.hosts.fleet import Fleet

pytestmark = pytest.mark.hosts
ROOT = Path(__file__).resolve().parents[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("DOCTOR_", "SLURM_", "RANK_"))}
WAITS = (
    "2026-11-21 12:00:{second:02} [rank{rank}]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] "
    "Timed out waiting 10000ms for recv operation to complete\n"
)
RAISES = (
    "[rank2]: Traceback (most recent call last)\n"
    "[rank2]:   File 'x.py', line 3\n"
    "[rank2]: ValueError: bad batch, token=abcdef1234\n"
)
STEPS = "".join(f"2026-11-21 11:{minute:02}:00 step {minute} loss 0.1\n" for minute in range(40))


class Answer(NamedTuple):
    """What the command ended with, and its JSON document."""

    code: int
    document: dict[str, Any]

    @property
    def cause(self) -> dict[str, Any]:
        (cause,) = self.document["causes"]
        return dict(cause)

    def file(self, host: str) -> dict[str, Any]:
        (file,) = [file for file in self.document["files"] if file["host"] == host]
        return dict(file)


def diagnose(fleet: Fleet, *arguments: str) -> Answer:
    argv = [sys.executable, "-m", "doctor", "diagnose", *arguments, "--json"]
    done = fleet.run(argv, env={**CLEAN, "PYTHONPATH": str(ROOT)}, cwd=ROOT, timeout=100)
    assert done.stdout and "Traceback" not in done.stderr, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    return Answer(done.returncode, document)


def of_hosts(fleet: Fleet, *arguments: str, hosts: tuple[str, ...] = ()) -> Answer:
    return diagnose(fleet, ",".join(hosts or fleet.hosts), "-F", str(fleet.ssh_config), *arguments)


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Iterator[Fleet]:
    created_fleet = make_fleet(3, {"*": {"users": {"ann": {}}}}, name="log", subnet="10.74.0.0/16")
    yield created_fleet
    created_fleet.down()


def put_waiting(fleet: Fleet) -> None:
    """Rank 2 raises; ranks 0 and 1 wait for it. One rank on each host."""
    for rank, host in enumerate(fleet.hosts[:2]):
        fleet.write(host, f"/root/logs/rank_{rank}.log", STEPS + WAITS.format(rank=rank, second=30))
    fleet.write(fleet.hosts[2], "/root/logs/rank_2.log", STEPS + RAISES)


@pytest.mark.parametrize("transport", ["ssh", pytest.param("openssh", marks=pytest.mark.full)])
def test_the_rank_is_named_with_its_host_and_the_line_in_its_log(fleet: Fleet, transport: str) -> None:
    put_waiting(fleet)
    answer = of_hosts(fleet, "--logs", "~/logs", "--transport", transport)
    assert answer.code == 10
    assert (answer.cause["ranks"], answer.cause["hosts"]) == ([2], [fleet.hosts[2]])
    (proof,) = answer.cause["evidence"]
    assert (proof["file"], proof["line"]) == (f"{fleet.hosts[2]}:/root/logs/rank_2.log", 43)
    assert "abcdef1234" not in json.dumps(answer.document)
    assert answer.file(fleet.hosts[2])["lines"] == 43


def test_saved_lines_give_the_same_diagnosis_and_hold_no_secret(fleet: Fleet, tmp_path: Path) -> None:
    put_waiting(fleet)
    saved = tmp_path / "logs.json"
    first = of_hosts(fleet, "--logs", "logs/*.log", "--save", str(saved))
    assert saved.stat().st_mode & 0o077 == 0
    assert "abcdef1234" not in saved.read_text()
    assert diagnose(fleet, "--from", str(saved)) == first


def test_a_host_that_cannot_be_read_makes_nobody_guilty(fleet: Fleet) -> None:
    """Two of three ranks wait; the log of the third is on a host without an sshd, or belongs to somebody else."""
    put_waiting(fleet)
    fleet.write(fleet.hosts[2], "/root/logs/rank_2.log", STEPS)
    named = of_hosts(fleet, "--logs", "~/logs")
    assert (named.cause["signature"], named.cause["ranks"]) == ("rank-silent", [2])
    folder = "/var/log/job"
    for rank, host in enumerate(fleet.hosts):
        fleet.enter(
            host,
            f"umask 022 && mkdir -p {folder} && cp /root/logs/* {folder}",
        )
        if rank == 2:
            fleet.enter(host, "chmod 600 /var/log/job/*")
    answer = of_hosts(fleet, "--logs", "/var/log/job", "-l", "ann")
    assert (answer.code, answer.document["causes"]) == (12, [])
    (unread,) = answer.document["unread"]
    assert unread == f"1 log on {fleet.hosts[2]}: Permission denied (/var/log/job/rank_2.log)"
    with fleet.broken(fleet.hosts[2], fault="refuse"):
        answer = of_hosts(fleet, "--logs", "~/logs")
    assert answer.code == 12 and "refuses connections" in answer.document["unread"][0]
    assert not answer.document["causes"]


def test_only_what_is_newer_than_asked_is_read(fleet: Fleet) -> None:
    put_waiting(fleet)
    fleet.enter(fleet.hosts[2], "touch -d '3 hours ago' /root/logs/rank_2.log")
    answer = of_hosts(fleet, "--logs", "~/logs", "--since", "2h", hosts=fleet.hosts[2:])
    assert (answer.code, answer.document["files"]) == (78, [])
    assert "1 file last written more than 2 h ago: not read" in answer.document["notes"]
    assert of_hosts(fleet, "--logs", "~/logs", "--since", "4h", hosts=fleet.hosts[2:]).code == 10


HOSTILE = """
mkdir -p /root/logs/sub && cd /root/logs
mkfifo pipe.log; ln -s . loop; ln -s /etc/shadow stolen.log; ln -s /dev/zero zero.log
head -c 300000 /dev/zero | tr '\\0' 'a' >long.log
head -c 2000000 /dev/urandom >noise.bin.log
truncate -s 1T sparse.log
printf '\\033]0;owned\\007[rank1]: ValueError: \\033[2Jbad\\n' >"$(printf 'e\\033[31mvil.log')"
mkdir -p deep && cd deep && for i in $(seq 60); do mkdir d && cd d; done
"""


ENDLESS = """
cd /root/logs && (while :; do echo '[rank0]: ValueError: endless'; done >>endless.log) >/dev/null 2>&1 &
"""


def test_hostile_files_are_bounded_and_write_nothing_into_the_report(fleet: Fleet) -> None:
    host = fleet.hosts[0]
    with fleet.broken(host, sh=HOSTILE):
        fleet.enter(host, ENDLESS)
        answer = of_hosts(fleet, "--logs", "~/logs", "--timeout", "6", hosts=(host,))
    text = json.dumps(answer.document, ensure_ascii=False)
    assert answer.code == 10 and "\x1b" not in text and "\x07" not in text and "root:" not in text
    names = [file["name"].rpartition("/")[2] for file in answer.document["files"]]
    assert "endless.log" in names and not {"pipe.log", "zero.log", "stolen.log"} & set(names)
    assert len(text) < 1 << 20


def test_compressed_and_chinese_logs_are_read_on_the_host(fleet: Fleet) -> None:
    text = (STEPS + "[rank1]: ValueError: 批次错误\n").encode("gb18030")
    packed = gzip.compress(b"[rank1]: Traceback (most recent call last)\n" + text)
    fleet.enter(fleet.hosts[1], "mkdir -p /root/logs && cat >/root/logs/rank_1.log.gz", input=packed, text=False)
    answer = of_hosts(fleet, "--logs", "~/logs", hosts=fleet.hosts[1:2])
    assert answer.cause["ranks"] == [1]
    assert answer.cause["evidence"][0]["line"] == 42 and "批次错误" in answer.cause["evidence"][0]["text"]
    fleet.mend()


def test_a_bundle_of_hosts_gives_the_same_diagnosis(fleet: Fleet, tmp_path: Path) -> None:
    """One archive of three hosts over SSH; of one that cannot be reached, exit code 12 and no culprit."""
    put_waiting(fleet)
    path = str(tmp_path / "b.tar.gz")
    words = ["bundle-logs", ",".join(fleet.hosts), "-F", str(fleet.ssh_config), "--logs", "logs", "--no-tools"]
    argv = [sys.executable, "-m", "doctor", *words, "--python", "true", "--out", path]
    done = fleet.run(argv, env={**CLEAN, "PYTHONPATH": str(ROOT)}, cwd=ROOT, timeout=100)
    assert done.returncode == 0, done.stderr
    answer = diagnose(fleet, path)
    assert (answer.code, answer.cause["ranks"], answer.cause["hosts"]) == (10, [2], [fleet.hosts[2]])
    with fleet.broken(fleet.hosts[2], fault="refuse"):
        done = fleet.run(argv, env={**CLEAN, "PYTHONPATH": str(ROOT)}, cwd=ROOT, timeout=100)
    assert done.returncode == 12 and "refuses connections" in done.stdout
    answer = diagnose(fleet, path)
    assert (answer.code, answer.document["causes"]) == (12, [])
