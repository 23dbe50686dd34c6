"""Raw outputs of the hosts: the saved run, and the fixture of tests."""

from __future__ import annotations

import errno
import re
import sys
from contextlib import suppress
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple

import msgspec

from doctor.engine.fact import Output, Visit
from doctor.engine.language import is_english
from doctor.engine.sanitize import UTF8_MARK, parse_problem, strip_control_chars
from doctor.engine.texts import TextTable, filled, read_table

SCHEMA = "doctor.run/5"
"""A change of `Run`, or of what is in it, gets a new number: `tests.test_saved_run` holds the form of this one."""
EARLIER_SCHEMAS = ("doctor.run/4", "doctor.run/3", "doctor.run/2", "doctor.run/1")
"""Still read; fields that have gone since are dropped, and named in a note. Those before the fourth have no ``texts``:
what was filled in before they were saved is shown in English."""
ENGLISH_NOTE = "it was saved in an earlier form, {0}: sentences with values in it stay English"
"""Of a document without a table of texts, where another language is asked for."""
MAX_RUN_BYTES = 1 << 31
"""Bytes of a saved run. 10,000 hosts with eight NPUs each need about half of it."""


Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
RankCount = Annotated[int, msgspec.Meta(ge=0, le=9_999_999)]


class OptionProblem(NamedTuple):
    """What is wrong with an option of a launch line, or with the script around it."""

    launcher: str
    option: str
    value: str
    """As given; of a missing option the value to give, where it is known; of a trial what the launcher said."""
    expected: str
    """Of a missing option with a value the reason; of a trial the command; of `alike` and `apart` the lines."""
    kind: Literal["refused", "beyond", "needed", "wanted", "trial", "waits", "misspelt", "alike", "apart"] = "refused"
    """``beyond``: a number that no host of the job has. ``needed``: not given, and no configuration gives it;
    ``wanted``: one may. ``trial``: the launcher was asked, and does not start the line; ``waits``: until hosts are
    free. ``misspelt``: a variable that the script does not set.
    ``alike``: a number that lines of several hosts have; ``apart``: places at which those meet."""


class LaunchSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a launch line and its scheduler say of the job. An empty field is not known."""

    read_from: str = ""
    """Where ``environ`` was read: ``the launch line``, ``process 4711``; empty: in the shell that runs doctor."""
    launch_line: str = ""
    launchers: tuple[str, ...] = ()
    """Of the launch line, outer to inner."""
    nodes: RankCount | None = None
    """Hosts that the launch line is for; of an elastic launch the least."""
    max_nodes: RankCount | None = None
    outer_nodes: RankCount | None = None
    """Hosts on which an outer launcher starts the one that numbers the ranks."""
    outer_tasks: RankCount | None = None
    """So often does srun, mpirun or pdsh start the launcher that numbers the ranks; once on each host is right.

    1: a job script of several hosts starts it on its own host alone."""
    outer_by_directive: bool = False
    """Directives of the job script say so: options of sbatch go before them."""
    node_rank: RankCount | None = None
    """Number of the host that the launch line is for, where it says one; with ``outer_tasks`` each has this one."""
    starts_here: bool = False
    """The launcher was given no hosts, by the line or by a scheduler: all its ranks are on the host that calls it."""
    store_by_name: bool = False
    """torchrun's agents find out by the hosts' own names which of them opens the store: ``--rdzv-backend c10d``."""
    announces_name: bool = False
    """The agent of rank 0 tells the others its host's full name, at which the ranks meet; not with ``--local-addr``."""
    option_problems: tuple[OptionProblem, ...] = ()
    starts_whole_job: bool = False
    """Each start of the launcher that numbers the ranks starts those of all hosts."""
    first_task_host: str = ""
    """The host on which srun starts task 0, which is rank 0."""
    limits: dict[str, str] = {}
    """What the job script sets for its ranks, by the letter of ``ulimit``."""
    differing: dict[str, str] = {}
    """Variables and options of the launch line that each host computes for itself, with the source text."""
    unresolved: dict[str, str] = {}
    """Variables that the job has, and options of its launchers, with a value that only a shell can compute: the source
    text by name, of an option with dashes before it."""
    time_limit_s: Seconds | None = None
    """The time limit that the job script asks the scheduler for, or the launch line sets for its step."""
    time_left_s: Seconds | None = None
    """Until the scheduler ends the job that doctor runs in, where the training is to run in it, too."""


class LaunchOptions(LaunchSettings, frozen=True, kw_only=True):
    """The job's settings, as the command line and the environment give them. An empty field is not given."""

    environ: dict[str, str] = {}
    """The environment variables that matter to the job."""
    framework: str = ""
    master_addr: str = ""
    master_port: Port | None = None
    world_size: RankCount | None = None
    ranks_per_host: dict[str, RankCount] | RankCount | None = None
    rank_table: str = ""
    """Path of the rank table that the command line names."""
    python: str = ""
    """The job's Python interpreter on the hosts."""
    product: str = ""
    by_host: dict[str, dict[str, str]] = {}
    """Each host's own environment variables, where `doctor merge` joins hosts' files."""
    places: dict[str, str] = {}
    """Where a job script sets a variable or gives an option, by name: ``run.sh:12``; of the empty name, its launch."""
    others: tuple[LaunchOptions, ...] = ()
    """Of further job scripts, each a job of its own, where `doctor lint` reads several."""

    def of_one_host(self) -> LaunchOptions:
        """The same where one host of the job is checked by itself: the job's number of hosts cannot be compared."""
        options = msgspec.structs.replace(
            self, nodes=None, max_nodes=None, outer_nodes=None, outer_tasks=None, starts_here=False
        )
        return options if len(self.launchers) == 1 else msgspec.structs.replace(options, node_rank=None)


class ProbeInputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The values that probes on the hosts receive; an ``ask`` function gets them as a dict."""

    hosts: tuple[str, ...] = ()
    """The names of all hosts of the fleet."""
    python: str = ""
    master_addr: str = ""
    announces_name: bool = False
    """As in `LaunchOptions`: each host's full name is looked up, too."""
    ports: tuple[Port, ...] = ()
    """Ports that the job will listen on."""
    rank_table: str = ""
    """Absolute path of the rank table."""
    folders: tuple[str, ...] = ()
    """Folders that the job writes to, as its environment has them: TMPDIR, HOME, the working folder."""
    temporary_folder: str = ""
    """The job's TMPDIR, which is one of them: absolute; empty where none is set."""
    paths: tuple[str, ...] = ()
    """Files and folders to compare among hosts: absolute."""
    job: str = ""
    """The Slurm job, and its restart count, that `doctor node` ran in."""


class RankTableFile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The file as it was given, whether or not it is a rank table."""

    path: str = ""
    text: str = ""
    error: str = ""
    """Why it could not be read; then ``text`` is empty."""
    link_target: str = ""
    """Where the path leads when it is a symbolic link."""

    def __bool__(self) -> bool:
        """False where the job has no rank table."""
        return bool(self.path or self.text or self.error)


class HostRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All raw outputs of one host."""

    visit: Visit
    outputs: dict[str, dict[str, Output]] = {}
    """By fact name, then by path, device number, or the empty string."""


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The records of all hosts, with everything needed to evaluate them again later."""

    schema: str
    source: str
    started: str
    seconds: float
    hosts: dict[str, HostRecord]
    probe_inputs: ProbeInputs = ProbeInputs()
    """Inputs of the probes on the hosts."""
    launch: LaunchOptions = LaunchOptions()
    """The job's settings, from which `doctor.job.LaunchConfig` is made."""
    rank_table: RankTableFile = RankTableFile()
    """The rank table that was checked, or why it could not be read."""
    notes: tuple[str, ...] = ()
    version: str = ""
    smoke: dict[str, Any] = {}
    """`doctor.smoke.model.SmokeRun` as builtins with keys of text, or the reason in ``not_started``; empty when no
    smoke run was requested. `doctor.session.replay.load` checks it."""
    checks: tuple[str, ...] = ()
    """The checks that it was made for; empty if unknown."""
    hosts_unknown: str = ""
    """Why the job may have more hosts than these; empty where it has not."""
    training: dict[str, Any] = {}
    """`doctor.job.training.TrainingLaunch` as builtins; empty when no launch line or configuration was given."""
    watch: dict[str, Any] = {}
    """`doctor.engine.watch_summary.WatchResult` as builtins with keys of text; empty when no program was watched."""
    after_reboot: bool = False
    """It is evaluated as after a reboot of its hosts: by what they load when they start."""
    other_rank_tables: dict[str, RankTableFile] = {}
    """By path, those that further job scripts name, where `doctor lint` reads several and finds them."""
    texts: TextTable = {}
    """How the texts in it were filled, for another language; `run_lines` writes it, `load_run` reads it."""

    @property
    def tried_network(self) -> bool:
        """Whether the hosts tried their network: a record has `doctor.facts.network_test.NetworkAnswer`."""
        return any("NetworkAnswer" in record.outputs for record in self.hosts.values())


class BadRun(Exception):
    """A saved run that cannot be read: what, where, what was expected."""


class SharedOutputs:
    """Decodes the outputs of many hosts: what they answered alike is one object for all. Used by many threads."""

    def __init__(self) -> None:
        self._answers: set[int] = set()
        self._outputs: dict[Output, Output] = {}
        self._by_text: dict[bytes, dict[str, Output]] = {}
        self._room = MAX_SHARED_BYTES

    def decode(self, raw: msgspec.Raw) -> dict[str, Output]:
        """The outputs of one probe, not to be changed, without how long a command took that ended: no fact is made of
        it, and it differs among hosts. Raises: msgspec.DecodeError, msgspec.ValidationError.
        """
        text = bytes(raw)
        if b'"ended"' not in text:
            text = _TIME.sub(b"", text)
        outputs = self._by_text.get(text)
        if outputs is None:
            outputs = msgspec.json.decode(text, type=dict[str, Output])
            if len(outputs) > 1:  # of many devices or files some differ among hosts, and most do not
                share = self._outputs.setdefault
                outputs = {sys.intern(name): share(output, output) for name, output in outputs.items()}
            # What a second host answers, others may; most that is said once is one host's own.
            if (key := hash(text)) not in self._answers:
                if len(self._answers) < MAX_SEEN:
                    self._answers.add(key)
            elif len(text) <= self._room:
                self._room -= len(text)
                self._by_text[text] = outputs
        return outputs

    def decode_timed(self, raw: msgspec.Raw) -> dict[str, Output]:
        """The same with the times, and what was printed alike in common."""
        if b'"seconds"' not in bytes(raw):
            return self.decode(raw)
        shared = self.decode(raw)
        timed = msgspec.json.decode(raw, type=dict[str, _Time])
        return {name: msgspec.structs.replace(shared[name], seconds=time.seconds) for name, time in timed.items()}


MAX_SEEN = 1 << 20
MAX_SHARED_BYTES = 1 << 26
_TIME = re.compile(rb',\s*"seconds"\s*:\s*[0-9.eE+-]+(?=\s*\})')


class _Time(msgspec.Struct, frozen=True):
    seconds: float = 0.0


class _RawRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    visit: Visit
    outputs: dict[str, msgspec.Raw] = {}


class _RawRun(Run, frozen=True, forbid_unknown_fields=True):
    """A run whose outputs are not read yet."""

    hosts: dict[str, _RawRecord]  # type: ignore[assignment]


def load_run(data: bytes, name: str) -> Run:
    """A saved run of this form or an earlier one. Raises: BadRun."""
    data = data.removeprefix(UTF8_MARK)
    try:
        try:
            raw = msgspec.json.decode(data, type=_RawRun)
            run = _run_of(raw, _records(raw.hosts, SharedOutputs()))
        except msgspec.ValidationError:
            run = _load_earlier(data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError, RecursionError) as error:
        raise BadRun(filled("{0}: not a saved run: {1}", name, parse_problem(error, data=data))) from None
    if data.count(_VISIT) > len(run.hosts):
        raise BadRun(filled("{0}: a host has two records; expected one for each host", name))
    return _of_today(run, name)


_VISIT = b'"visit":'
"""Each record has it once; within a text its quotation marks are escaped. Of two records, JSON keeps the last."""


def load_run_file(file: BinaryIO, limit: int, name: str) -> Run:
    """The same of a file, host by host where each has a line of its own, as `run_lines` writes them.

    Raises: BadRun; OSError, also where there are more than ``limit`` bytes.
    """
    head = file.readline(limit)
    if head.endswith(HOSTS_BEGIN):
        with suppress(msgspec.DecodeError, msgspec.ValidationError, UnicodeError, RecursionError):
            return _of_today(_load_lines(head, file, limit - len(head), name), name)
        file.seek(0)
        head = b""
    data = head + file.read(limit + 1 - len(head))
    if len(data) > limit:
        raise OSError(errno.EFBIG, filled("is larger than {0}", f"{limit >> 20} MiB"))
    return load_run(data, name)


def _load_lines(head: bytes, file: BinaryIO, remaining: int, name: str) -> Run:
    """Raises: msgspec.DecodeError for lines of another form; BadRun for two of one host; like `load_run_file`."""
    shared, hosts, line = SharedOutputs(), dict[str, HostRecord](), b","
    while True:
        followed, line = line.endswith(b","), file.readline(max(remaining, 0)).rstrip(b"\n")
        remaining -= len(line) + 1
        if not line.startswith(b'"'):
            break
        if not followed:
            raise msgspec.DecodeError  # no comma between two hosts
        records = msgspec.json.decode(b"{%b}" % line.removesuffix(b","), type=dict[str, _RawRecord])
        if twice := hosts.keys() & records.keys():
            raise BadRun(filled("{0}: host {1} twice", name, strip_control_chars(min(twice), 200)))
        hosts |= _records(records, shared)
    run = msgspec.json.decode(head + line + file.read(max(remaining, 0)), type=_RawRun)
    if run.hosts or (followed and hosts):
        raise msgspec.DecodeError  # hosts in two places, or a comma behind the last
    return _run_of(run, hosts)


HOSTS_BEGIN = b'"hosts":{\n'
"""Ends the first line of a run that has each host on a line of its own."""


def _records(raw: dict[str, _RawRecord], shared: SharedOutputs) -> dict[str, HostRecord]:
    return {
        host: HostRecord(record.visit, {sys.intern(fact): shared.decode(text) for fact, text in record.outputs.items()})
        for host, record in raw.items()
    }


def _run_of(raw: _RawRun, hosts: dict[str, HostRecord]) -> Run:
    return Run(**{**msgspec.structs.asdict(raw), "hosts": hosts})


def _of_today(run: Run, name: str) -> Run:
    """Raises: BadRun for another form."""
    if run.schema not in (SCHEMA, *EARLIER_SCHEMAS):
        raise BadRun(
            filled("{0}: schema {1}, expected {2}", name, f"{strip_control_chars(run.schema, 60)!r}", f"{SCHEMA!r}")
        )
    read_table(run.texts)
    if run.schema in EARLIER_SCHEMAS and not run.texts and not is_english():
        run = msgspec.structs.replace(run, notes=(*run.notes, filled(ENGLISH_NOTE, run.schema)))
    return msgspec.structs.replace(run, schema=SCHEMA, texts={})


def _load_earlier(data: bytes) -> Run:
    """A run of `EARLIER_SCHEMAS` without the fields that are not known any more; a note names them.

    Raises: msgspec.ValidationError, also for what is wrong in a run of today's form.
    """
    saved = msgspec.json.decode(data)
    if not isinstance(saved, dict) or saved.get("schema") not in EARLIER_SCHEMAS:
        return msgspec.json.decode(data, type=Run)
    hosts = saved.get("hosts")
    parts: list[tuple[str, Any, type[msgspec.Struct]]] = [("", saved, Run)]
    parts += [(f"{key}.", saved.get(key), kind) for key, kind in _PARTS.items()]
    parts += [("hosts.", record, HostRecord) for record in (hosts.values() if isinstance(hosts, dict) else ())]
    dropped = {f"{place}{field}" for place, part, kind in parts for field in _drop_unknown(part, kind)}
    run = msgspec.convert(saved, Run)
    if not dropped:
        return run
    names = strip_control_chars(", ".join(sorted(dropped)), 200)
    note = filled("the run was saved in an earlier form, {0}: {1} cannot be read any more", saved["schema"], names)
    return msgspec.structs.replace(run, notes=(*run.notes, note))


_PARTS: dict[str, type[msgspec.Struct]] = {
    "launch": LaunchOptions,
    "probe_inputs": ProbeInputs,
    "rank_table": RankTableFile,
}


def _drop_unknown(part: object, kind: type[msgspec.Struct]) -> list[str]:
    """Removes the fields that the struct does not have. Returns their names."""
    unknown = [name for name in part if name not in kind.__struct_encode_fields__] if isinstance(part, dict) else []
    for name in unknown:
        part.pop(name)  # type: ignore[attr-defined]
    return unknown
