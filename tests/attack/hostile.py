"""Mutated inputs through every parser: no crash, no input that takes more than two seconds, no false OK.

The seeds are answers of a test host with eight emulated NPUs (``record.json``), and small examples of each format. A
target returns nothing, raises one of its documented errors, or returns why its result is a false OK.
"""

from __future__ import annotations

import base64
import json
import random
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from doctor.collect.collector_request import parse_response, unique_facts
from doctor.collect.merge.node_records import NodeFileRecord, parse_node_record
from doctor.collect.node_lines import Assembly, TornRecord, encode_lines, parse_part
from doctor.config.file import ConfigError
from doctor.config.waivers import parse_waivers
from doctor.engine.catalog import check_files, load_checks
from doctor.engine.evaluate import read_fact
from doctor.engine.fact import Absent, Fact, Output, Visit
from doctor.engine.record import SCHEMA, BadRun, HostRecord, Run
from doctor.engine.run_writing import redact_run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.secrets import hide_secrets
from doctor.facts.visit import ClockOffset
from doctor.hosts.hostfile import parse_hostfile
from doctor.hosts.nodeset import MAX_HOSTS, InventoryError, expand_nodeset, validate_host
from doctor.job import NotARankTable, read_rank_table
from doctor.rank_table.reduce import ReductionError, reduce_table
from doctor.remedy.catalog import PlaybookError, read_playbook
from doctor.session.replay import load, replay
from doctor.smoke.protocol import parse_event, parse_message
from doctor.transport import CommandResult, TransportError
from doctor.transport.launcher.frames import FrameError, FrameReader
from doctor.transport.openssh.log import error_from_log
from doctor.transport.program import InvalidMessage
from doctor.transport.ssh.config import host_config, parse_hop, parse_target, parse_values
from doctor.transport.ssh.known_hosts import KnownHosts, verify_key
from tests.checks import tables
from tests.node_files import line, run_of

ROOT = Path(__file__).parents[2]
SECONDS = 2.0
"""CPU time that one input may take."""
NASTY = [
    *(
        "",
        "\0",
        "\n",
        "\r\n",
        "\x1b[31m",
        "\u202e",
        "\udcff",
        "é",
        "💥",
        "%s",
        "$(id)",
        "`id`",
        "../..",
        "'",
        '"',
        "\\",
    ),
    *("0", "-1", "1e308", "-1e308", "NaN", "inf", "9" * 5000, "99999999999999999999", "0x0", "1_000", "٣"),
    *("[", "]", "[" * 3000, "{" * 3000, "[1-99999999]", "[-1-9000000]", "[1-2]" * 12, "*" * 60, "?a*" * 30, "!*"),
    *("null", "true", "{}", "[]", ",", ":", "=", " " * 2000, "\t", "token=", "token" * 500, "a" * 5000, "\n" * 2000),
    *("10.0.0.1", "::1", "fe80::1%x\n", "127.0.0.1", "255.255.255.255/0", "host:99999999999", "-oProxyCommand=x"),
]
Error = type[BaseException]


class Target(NamedTuple):
    """One parser: texts to begin with, what is called, and the errors that it documents."""

    seeds: Sequence[str]
    call: Callable[[str], str | None]
    errors: tuple[Error, ...] = ()


class Hang(BaseException):
    """The input took too long."""


def campaign(count: int, seed: int) -> int:
    """Attacks ``count`` times; prints and counts what crashed, hung, or was a false OK."""
    rng, counts, failed = random.Random(seed), Counter[str](), 0
    names = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
    targets = make_targets()
    old = signal.signal(signal.SIGVTALRM, _hang)
    try:
        for number in range(count):
            name = rng.choice(names)
            counts[name] += 1
            target = targets[name]
            text = mutated(rng, rng.choice(target.seeds))
            why = attack(target, text)
            if why:
                failed += 1
                print(f"{name}, number {number}: {why}\n  input: {text[:300]!r}{'...' if len(text) > 300 else ''}")
    finally:
        signal.signal(signal.SIGVTALRM, old)
    print(", ".join(f"{name} {number}" for name, number in sorted(counts.items())))
    return failed


def _hang(*_: object) -> None:
    raise Hang


def attack(target: Target, text: str) -> str | None:
    """What went wrong, or None."""
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        return target.call(text)
    except target.errors as error:
        return None if len(str(error)) < 3000 else f"an error of {len(str(error))} characters"
    except Hang:
        return f"more than {SECONDS:g} s"
    except Exception:  # noqa: BLE001 - whatever it is, it is a crash
        return f"crash: {traceback.format_exc(limit=-3)}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def mutated(rng: random.Random, text: str) -> str:
    """The text after one to five changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((1, 1, 2, 8, 40, 400)))
        kind = rng.randrange(8)
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + rng.choice(NASTY) + text[at:]
        elif kind == 2:
            text = text[:at] + rng.choice(NASTY) + text[end:]
        elif kind == 3:
            text = text[:at] + text[at:end] * rng.choice((2, 3, 50)) + text[end:]
        elif kind == 4:
            text = text[:at] + chr(rng.choice((rng.randrange(128), rng.randrange(0x300), 0x2028))) + text[at + 1 :]
        elif kind == 5:
            parts = text[:4000].split(rng.choice((" ", "\n", ",", ":")))
            text = " ".join(rng.sample(parts, len(parts)))
        elif kind == 6:
            text = text[:at]
        else:
            text = text[at:end] + text
    return text[: 1 << 20]


@cache
def record() -> HostRecord:
    """What the test host said."""
    return msgspec.json.decode(Path(__file__).with_name("record.json").read_bytes(), type=HostRecord)


@cache
def checks() -> list[Any]:
    return [check for check in load_checks() if check.area != "smoke"]


@cache
def facts() -> tuple[type[Fact], ...]:
    return unique_facts(fact for check in checks() for fact in check.facts)


def all_outputs() -> list[tuple[str, str, Output]]:
    return [(fact, key, output) for fact, by_key in record().outputs.items() for key, output in by_key.items()]


def with_output(fact: str, key: str, output: Output) -> HostRecord:
    outputs = record().outputs
    return HostRecord(record().visit, {**outputs, fact: {**outputs.get(fact, {}), key: output}})


def split_seed(text: str) -> tuple[str, str, str]:
    """A fact's name, a key and an output, as a seed joins them; what a mutation spoilt is another key."""
    fact, _, rest = text.partition("\x1f")
    key, _, out = rest.partition("\x1f")
    return fact, key, out


def clean(text: str) -> str:
    """As it comes from a host: decoded, so without surrogates."""
    return text.encode("utf-8", "replace").decode()


def attack_fact(text: str) -> str | None:
    name, key, out = split_seed(clean(text))
    fact = next((fact for fact in facts() if fact.__name__ == name), None)
    if fact is None:
        return None
    value = read_fact(with_output(name, key, Output(out=out)), fact)
    if isinstance(value, Absent):
        return (
            None if str(value).isprintable() and len(str(value)) < 2000 else f"a reason as the host wrote it: {value}"
        )
    return None


def attack_check(text: str) -> str | None:
    name, key, out = split_seed(clean(text))
    run = Run(SCHEMA, "x", "", 0.0, {"a": record(), "b": with_output(name, key, Output(out=out))})
    report = replay(run, checks())
    crashed = [outcome for outcome in report.outcomes if outcome.crashed]
    return f"{crashed[0].check}: {crashed[0].crashed}" if crashed else None


def attack_run(text: str) -> str | None:
    run = load(text.encode("utf-8", "surrogateescape"), "run")
    report = replay(redact_run(run), checks()[:10])
    crashed = [outcome for outcome in report.outcomes if outcome.crashed]
    if crashed:
        return f"{crashed[0].check}: {crashed[0].crashed}"
    return None if set(report.hosts) == set(run.hosts) else "a host is lost"


def attack_node_file(text: str) -> str | None:
    node_file_record = parse_node_record(load(text.encode("utf-8", "surrogateescape"), "node"), "node")
    visit = node_file_record.record.visit
    if not visit.failure and abs(visit.began - node_file_record.began.timestamp()) > 7200:
        return "a visit of another time"
    return None if isinstance(node_file_record, NodeFileRecord) else "no record"


def attack_node_lines(text: str) -> str | None:
    assembly, results = Assembly(), []
    for part in map(parse_part, text.encode("utf-8", "surrogateescape").split(b"\n")):
        try:
            content = assembly.add(part, 1 << 20) if part else None
        except TornRecord:
            continue
        results += [content] if content is not None else []
    return "a record that was never written" if any(content != NODE_RECORD for content in results) else None


def attack_response(text: str) -> str | None:
    marker = "0123456789abcdef"
    result = CommandResult(0, text.encode("utf-8", "surrogateescape"), b"", 100.0, 101.0)
    host_record = parse_response(result, marker)
    clock = read_fact(host_record, ClockOffset)
    if isinstance(clock, ClockOffset) and not clock.maximum - clock.minimum <= 2:
        return f"a boundless clock: {clock}"
    return None


def attack_frames(text: str) -> str | None:
    for frame in FrameReader().read(text.encode("utf-8", "surrogateescape")):
        if len(frame.data) > 1 << 26:
            return "a frame without bound"
    return None


def attack_node_set(text: str) -> str | None:
    hosts = expand_nodeset(text, "--hosts")
    return named_well(hosts)


def attack_hostfile(text: str) -> str | None:
    return named_well([host.host for host in parse_hostfile(text, "hosts")])


def named_well(hosts: Sequence[str]) -> str | None:
    if len(hosts) > MAX_HOSTS:
        return f"{len(hosts)} hosts"
    return next((f"a bad name: {host!r}" for host in hosts if validate_host(host, "") and not host.isprintable()), None)


def attack_rank_table(text: str) -> str | None:
    table = read_rank_table("/t", text)
    reduce_table(text, [server.server_id for server in table.servers][:1])
    return None


def attack_playbook(text: str) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "our-remedy.toml"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        read_playbook(path, check_paths())
    return None


@cache
def check_paths() -> dict[str, Path]:
    return {path.stem.replace("_", "-"): path for path, _ in check_files()}


def attack_waivers(text: str) -> str | None:
    parse_waivers(text, "doctor.toml", set(check_paths()))
    return None


KEY = base64.b64encode(b"\0\0\0\x0bssh-ed25519 a key").decode()


def attack_known_hosts(text: str) -> str | None:
    verdict = verify_key(KnownHosts(text).find("node7.site"), KEY)
    return "a key that is not in the file is known" if verdict == "known" and KEY not in text else None


def attack_ssh_config(text: str) -> str | None:
    settings = host_config("node7", parse_values(text))
    return None if 0 <= settings.port <= 65535 else f"port {settings.port}"


def attack_ssh_log(text: str) -> str | None:
    error = error_from_log(text, text.encode("utf-8", "surrogateescape"), host_config("node7", {}))
    return None if error.text.isprintable() else f"as the host wrote it: {error.text!r}"


def attack_target(text: str) -> str | None:
    target = parse_target(text)
    parse_hop(text)
    return f"an option: {target}" if target.name.startswith("-") or target.user.startswith("-") else None


def attack_text(text: str) -> str | None:
    once = hide_secrets(text)
    return None if strip_control_chars(text).isprintable() and len(once) < 4 * len(text) + 100 else "not safe to show"


def attack_message(text: str) -> str | None:
    message = parse_message(text.encode("utf-8", "surrogateescape"))
    if bytes(message.event):
        parse_event(message.event)
    return None


NODE_RUN = run_of("n1", observed_outputs={"Noise": {"": Output(out="noise" * 400)}})
NODE_RECORD = line(NODE_RUN)
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.toml"))
SSH_VALUES = """host node7
hostname 10.0.0.7
port 22
user root
identityfile ~/.ssh/id_ed25519
userknownhostsfile /root/.ssh/known_hosts /root/.ssh/known_hosts2
connecttimeout none
proxyjump jump@gate:2222
proxycommand none
addressfamily any
"""
SSH_LOG = """debug1: Authenticating to node7:22 as 'root'
Offending ED25519 key in /root/.ssh/known_hosts:7
root@node7: Permission denied (publickey).
debug1: Exit status 255
"""
MESSAGES = [
    '{"event":{"event":"stage","stage":"pairs","seconds":1.5,"rank":0,"at":1.0}}',
    '{"late":0.25,"evidence":[[0,"10.0.0.1",29500,0,0]],"stacks":{"0":"File \\"a.py\\", line 3"}}',
    '{"snaps":[],"listening":[[0,"::",29500]],"probes":[["10.0.0.1",22,"ok",0.1]],"fault":"","bye":null}',
]
WAIVER = (
    '[[waive]]\nchecks = ["memory-short", "shm-full"]\nhosts = "node[01-04],gpu7"\nreason = "x"\nuntil = 2026-12-31\n'
)
FRAME = base64.b64encode(b"\0" * 40).decode()

WEIGHTS = {
    "fact": 24,
    "rank table": 8,
    "node set": 8,
    "hostfile": 8,
    "playbook": 4,
    "known_hosts": 8,
    "waivers": 8,
    "ssh -G": 6,
    "ssh log": 4,
    "frames": 4,
    "response": 4,
    "saved run": 2,
    "node file": 4,
    "node lines": 4,
    "smoke message": 8,
    "target": 8,
    "text": 8,
    "check": 1,
}
"""How often each target is attacked, of all."""


@cache
def make_targets() -> dict[str, Target]:
    """Every parser that reads what somebody else wrote."""
    seeds = [f"{fact}\x1f{key}\x1f{output.out}" for fact, key, output in all_outputs()]
    run = Run(SCHEMA, "1 host", "2026-01-01T00:00:00Z", 1.0, {"sb0001": record()})
    small = msgspec.structs.replace(
        run, hosts={"w1": HostRecord(Visit(), {"HostNames": record().outputs["HostNames"]})}, notes=("note",)
    )
    answer = {"outputs": {}, "python": "3.11", "uid": 0, "name": "n", "began": 100.2, "ended": 100.8}
    framed = f"noise\n0123456789abcdef\n{json.dumps(answer)}\n0123456789abcdef end\n"
    known_hosts = f"node7.site,10.0.0.7 ssh-ed25519 AAAA\n*.site,!x ssh-rsa BBBB\n|1|c2FsdA==|ZGlnZXN0|x {KEY[:-8]}\n"
    return {
        "fact": Target(seeds, attack_fact),
        "check": Target(seeds, attack_check),
        "saved run": Target([msgspec.json.encode(small).decode()], attack_run, (BadRun,)),
        "node file": Target([NODE_RECORD.decode()], attack_node_file, (BadRun,)),
        "node lines": Target([b"".join(encode_lines("n1", NODE_RECORD)).decode()], attack_node_lines),
        "response": Target([framed], attack_response, (TransportError,)),
        "frames": Target([f"noise({FRAME}.0){FRAME}\n"], attack_frames, (FrameError,)),
        "rank table": Target(
            [json.dumps(table) for table in (tables.a1(), tables.a2(), tables.a3(1, 2, 2))],
            attack_rank_table,
            (NotARankTable, ReductionError),
        ),
        "node set": Target(["node[001-064],gpu7", "10.1.2.[1-32]", "a[1-2]b[3,5-9/2] c"], attack_node_set, BAD_HOSTS),
        "hostfile": Target(["a slots=8\nb:8\n[::1]:4\n# c\nd max_slots = 3\n"], attack_hostfile, BAD_HOSTS),
        "playbook": Target([path.read_text("utf-8") for path in PLAYBOOKS], attack_playbook, (PlaybookError,)),
        "waivers": Target([WAIVER], attack_waivers, (ConfigError,)),
        "known_hosts": Target([known_hosts], attack_known_hosts),
        "ssh -G": Target([SSH_VALUES], attack_ssh_config, (TransportError,)),
        "ssh log": Target([SSH_LOG], attack_ssh_log),
        "target": Target(["root@node7", "ssh://u@[::1]:22", "node7.site"], attack_target, (TransportError,)),
        "text": Target(["train --token abc --lr 3", "https://u:pw@h/", '{"api_key": "x"}', "a=\x1b[31m"], attack_text),
        "smoke message": Target(MESSAGES, attack_message, (InvalidMessage,)),
    }


BAD_HOSTS: tuple[Error, ...] = (InventoryError,)
