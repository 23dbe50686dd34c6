"""Which run is compared, what differs, and which change comes first; what is not known has not changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine import language
from doctor.engine.catalog import load_checks
from doctor.engine.evaluate import FactCache
from doctor.engine.exit_code import Verdict, exit_code
from doctor.engine.fact import Output, Visit
from doctor.engine.record import SCHEMA, HostRecord, LaunchOptions, Run
from doctor.engine.result import Finding, Outcome, Severity
from doctor.environment.job_environment import of_launch_line
from doctor.facts import snapshot
from doctor.facts.settings import settings_of, unread_reason
from doctor.history.baseline import EarlierRun, choose_baseline
from doctor.history.kept_values import UnusableValues, decode_values, encode_values
from doctor.history.run_record import RunRecord, make_record
from doctor.report.diff.rank_changes import RankedChange, rank_changes
from doctor.report.diff.render import change_line
from doctor.report.diff.render_changes import ChangesPage, render, render_json
from doctor.report.diff.values import (
    RunValues,
    UnreadCategories,
    ValueChange,
    compare_values,
    uncompared,
    values_of_run,
)
from doctor.report.layout.host_names import Fleet
from doctor.session import code_revision
from doctor.session.code_revision import code_of_line
from tests.history.seeded_changes import JOB_CHANGES, JobChange
from tests.hosts.gpu import GPU, REPORT_HEAD
from tests.report import reports as example_reports
from tests.schemas import schema_file

CHECKS = load_checks()
HOSTS = ("n1", "n2", "n3")
WARNING = Severity.WARNING


def values(started: str = "2026-11-20T10:00:00Z", **by_host: Mapping[str, Mapping[str, str]]) -> RunValues:
    """Values by host, then by category; all of one fact."""
    hosts = {
        host: {"HostSnapshot": {kind: dict(kinds_here) for kind, kinds_here in kinds.items()}}
        for host, kinds in by_host.items()
    }
    return RunValues(started, "check", "healthy", hosts)


def alike(started: str = "", **sysctl: str) -> RunValues:
    return values(started, **{host: {"sysctl": sysctl} for host in HOSTS})


def earlier(
    run: RunValues | None, verdict: str = "healthy", command: str = "check", code: int | None = None
) -> EarlierRun:
    return EarlierRun(command, verdict, frozenset(HOSTS), lambda: run, code)


def test_an_interface_that_came_is_told_without_its_parts() -> None:
    parts = {"cards": {"ib1 rx": "on", "ib0 rx": "off"}}
    before = values(n1={"interfaces": {"ib0": "up"}, "cards": {"ib0 rx": "on"}})
    now = values(n1={"interfaces": {"ib0": "up", "ib1": "up", "route 10.9.0.0/16": "ib1",
                                    "router to 10.9.0.0/16": "ib1 via 10.9.0.1"}, **parts})  # fmt: skip
    names = [change.name for change in compare_values(before, now)]
    assert names == ["ib0 rx", "ib1", "route 10.9.0.0/16"]
    assert [change.name for change in compare_values(now, before)] == names
    rerouted = values(n1={"interfaces": {**now.hosts["n1"]["HostSnapshot"]["interfaces"],
                                         "router to 10.9.0.0/16": "ib1 via 10.9.0.2"}, **parts})  # fmt: skip
    assert [change.name for change in compare_values(now, rerouted)] == ["router to 10.9.0.0/16"]


def test_hosts_that_changed_alike_are_one_change() -> None:
    before = alike(a="1", b="1")
    now = values(n1={"sysctl": {"a": "2", "b": "1"}}, n2={"sysctl": {"a": "2", "b": "3"}}, n3={"sysctl": {"a": "2"}})
    assert compare_values(before, now) == (
        ValueChange("sysctl", "a", "1", "2", HOSTS),
        ValueChange("sysctl", "b", "1", "3", ("n2",)),
        ValueChange("sysctl", "b", "1", None, ("n3",)),
    )


def test_what_one_run_did_not_read_has_not_changed() -> None:
    before = values(n1={"sysctl": {"a": "1"}}, n2={"sysctl": {"a": "1"}}, gone={"sysctl": {"a": "1"}})
    now = values(n1={"packages": {"p": "1"}}, n2={"sysctl": {"a": "1"}}, new={"sysctl": {"a": "9"}})
    assert compare_values(before, now) == ()
    assert uncompared(before, now) == {
        UnreadCategories("before", ("packages",)): ("n1",),
        UnreadCategories("now", ("sysctl",)): ("n1",),
    }
    text = render(ChangesPage(before=before, now=now, worked=True, changes=(), uncompared=uncompared(before, now)), 0)
    assert "nothing that was compared has changed since" in text
    assert "not compared in full: packages, on n1 (1/3); doctor check did not read all then" in text
    assert "not compared in full: sysctl, on n1 (1/3); not read now" in text
    assert "not compared: gone, in the earlier run alone" in text


def test_what_one_run_read_only_in_part_is_named() -> None:
    """A saved `doctor check` has the kernel settings that checks judge, and `doctor changes` reads all."""
    judged = {"LiveSettings": {"sysctl": {"a": "1"}}}
    before = RunValues("t0", hosts={"n1": judged})
    now = RunValues("t1", hosts={"n1": {**judged, "HostSnapshot": {"sysctl": {"a": "1", "b": "2"}}}})
    assert compare_values(before, now) == ()
    assert uncompared(before, now) == {UnreadCategories("before", ("sysctl",)): ("n1",)}
    text = render(ChangesPage(before=before, now=now, worked=True, changes=(), uncompared=uncompared(before, now)), 0)
    assert "nothing that was compared has changed since" in text and "not compared in full: sysctl, on n1" in text


def test_routes_beside_those_of_addresses_and_what_delays_packets_are_settings() -> None:
    listing = {
        "links": [
            ["lo", True, True, True, 65536, "", False, False],
            ["eth0", True, True, False, 1500, "", True, False],
        ],
        "addresses": [["lo", "lo", "127.0.0.1", 8], ["eth0", "eth0", "10.0.0.1", 24]],
        "routes": [["10.0.0.0", 24, "eth0"], ["10.99.0.0", 16, "eth0"], ["0.0.0.0", 0, "eth0"], ["fd00::", 64, "eth0"]],
        "has_rules": False,
        "delays": [["eth0", "netem", 0.05, 0.01, 0]],
    }
    outputs = {"Interfaces": {"": Output(out=json.dumps(listing))}}
    settings = settings_of("n1", FactCache({"n1": HostRecord(Visit(), outputs)}))
    assert settings["Interfaces"]["interfaces"] == {
        "eth0": "mtu 1500, up, 10.0.0.1/24",
        "eth0 netem": "delays by 50 ms and drops 1 %",
        "route 10.99.0.0/16": "eth0",
        "default route": "eth0",
    }


def _devices(fact: str, text: str) -> Mapping[str, str]:
    record = HostRecord(Visit(), {fact: {"": Output(code=0, out=text)}})
    return settings_of("n1", FactCache({"n1": record}))[fact]["devices"]


def test_which_modules_for_devices_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are loaded on demand, as this one by `ss`."""
    text = "knem 16384 0 - Live 0x0\ntcp_diag 16384 0 - Live 0x0\nib_umad 40960 0 - Live 0x0\n"
    monkeypatch.setattr(snapshot, "read_text", lambda path, limit: text if path == "/proc/modules" else "")
    modules = snapshot.read_snapshot({})["modules"]
    assert (modules.get("knem"), modules.get("ib_umad"), modules.get("tcp_diag")) == ("loaded", "loaded", None)


def test_what_an_operator_sets_of_gpus_is_a_setting_of_the_host() -> None:
    gpus = [GPU.format(number=number) for number in range(4)]
    gpus[3] = gpus[3].replace("700.00 W", "500.00 W").replace("<persistence_mode>Enabled", "<persistence_mode>Disabled")
    settings = _devices("GpuInventory", REPORT_HEAD + "".join(gpus) + "</nvidia_smi_log>")
    assert settings["GPU power limit"] == "700.0 (0-2), 500.0 (3)"
    assert settings["GPU persistence"] == "True (0-2), False (3)" and settings["GPU mig"] == "Disabled"
    assert "UNREAD" not in settings and not any("temperature" in name for name in settings)


def test_what_a_driver_could_not_read_of_a_gpu_is_not_gone() -> None:
    lost = GPU.format(number=1).replace("<persistence_mode>Enabled", "<persistence_mode>Unknown Error")
    before = GPU.format(number=0) + GPU.format(number=1)
    texts = [REPORT_HEAD + gpus + "</nvidia_smi_log>" for gpus in (before, GPU.format(number=0) + lost)]
    was, now = (values(n1={"devices": _devices("GpuInventory", text)}) for text in texts)
    assert compare_values(was, now) == ()


def test_why_this_run_did_not_read_a_category() -> None:
    facts = FactCache({"n1": HostRecord(Visit(), {"MountTable": {"/proc/self/mounts": Output("timeout")}})})
    why = unread_reason("n1", ("mounts", "sysctl"), facts)
    assert "no answer" in why and unread_reason("n1", ("sysctl",), facts) == ""
    before = values(n1={"mounts": {"/data": "nfs"}})
    page = ChangesPage(
        before=before,
        now=values(n1={}),
        worked=True,
        changes=(),
        uncompared=uncompared(before, values(n1={}), lambda host, names: unread_reason(host, names, facts)),
    )
    assert f"not compared in full: mounts, on n1 (1/1); unreadable now: {why}" in render(page, 0)
    (gap,) = json.loads(render_json(page, 0))["uncompared"]
    assert gap == {"run": "now", "categories": ["mounts"], "reason": why, "hosts": ["n1"]}


def test_the_last_run_that_worked() -> None:
    now, good, bad = alike(a="3"), alike("t1", a="1"), alike("t2", a="2")
    chosen = choose_baseline([earlier(bad, Verdict.FAILED.value), earlier(good)], now)
    assert chosen
    assert (chosen.values.started, chosen.worked) == ("t1", True)
    only_bad = choose_baseline([earlier(bad, Verdict.FAILED.value)], now)
    assert only_bad
    assert (only_bad.values.started, only_bad.worked) == ("t2", False)
    assert choose_baseline([], now) is None
    assert choose_baseline([earlier(None)], now) is None


@pytest.mark.parametrize(
    ("verdict", "code", "worked"),
    [
        (Verdict.WARNINGS, 11, False),  # --strict stopped the job
        (Verdict.WARNINGS, 10, False),  # --fail-on warning
        (Verdict.WARNINGS, 0, True),
        (Verdict.UNKNOWN, 0, True),  # --on-unknown ok
        (Verdict.HEALTHY, 130, False),  # interrupted
        (Verdict.HEALTHY, 78, False),  # its report could not be written
        (Verdict.WARNINGS, None, True),
        (Verdict.UNKNOWN, None, False),
    ],
)
def test_a_run_worked_whose_exit_code_let_the_job_go_on(verdict: Verdict, code: int | None, worked: bool) -> None:
    now, good, later = alike(a="3"), alike("t1", a="1"), alike("t2", a="2")
    chosen = choose_baseline([earlier(later, verdict.value, code=code), earlier(good)], now)
    assert chosen
    assert chosen.values.started == ("t2" if worked else "t1")


def test_a_job_failed_whose_watch_ended_with_another_exit_code_than_0() -> None:
    now, good, preflight = alike(a="3"), alike("t1", a="1"), alike("t2", a="2")
    runs = [earlier(None, Verdict.WARNINGS.value, "watch", 11), earlier(preflight, code=0), earlier(good, code=0)]
    chosen = choose_baseline(runs, now)
    assert chosen
    assert chosen.values.started == "t1"


def test_a_record_keeps_the_exit_code_and_one_without_is_read() -> None:
    report = example_reports.small()
    record = make_record(report, CHECKS, "check", code=11)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=RunRecord).code == 11
    older = msgspec.to_builtins(record)[:-1]
    assert msgspec.convert(older, RunRecord).code is None
    assert make_record(report, CHECKS, "check").code == exit_code(report)


def test_categories_are_in_the_language_of_the_reader() -> None:
    change = RankedChange(ValueChange("packages", "numpy", "1.26", "2.0", ("n1",)), "", (), 0)
    page = ChangesPage(before=alike(a="1"), now=alike(a="2"), worked=True, changes=(change,))
    language.select("zh", {})
    try:
        text = render(page, 0)
    finally:
        language.select("en", {})
    assert "packages" not in text
    assert "numpy" in text


def test_a_healthy_run_whose_job_then_failed_did_not_work() -> None:
    now, good, preflight = alike(a="3"), alike("t1", a="1"), alike("t2", a="2")
    runs = [earlier(None, Verdict.FAILED.value, "diagnose"), earlier(preflight), earlier(good)]
    chosen = choose_baseline(runs, now)
    assert chosen
    assert chosen.values.started == "t1"


def test_runs_that_equal_now_cannot_explain_it() -> None:
    now = alike("t4", a="2")
    runs = [earlier(alike("t3", a="2")), earlier(alike("t2", a="2")), earlier(alike("t1", a="1"))]
    chosen = choose_baseline(runs, now)
    assert chosen
    assert (chosen.values.started, chosen.same_since) == ("t1", "t2")
    same = choose_baseline(runs[:2], now)
    assert same
    assert (same.values.started, same.changes) == ("t3", ())


def rank(*changes: ValueChange, findings: Sequence[tuple[str, str]] = ()) -> list[RankedChange]:
    outcomes = [
        Outcome(check, WARNING, "kernel", "", (Finding("found", hosts=(host,)),), HOSTS) for check, host in findings
    ]
    report = example_reports.report(*outcomes, hosts=HOSTS)
    return list(rank_changes(changes, report, CHECKS, {"listen-queue-short": 5, "npu-driver-differs": 2}))


SOMAXCONN = ValueChange("sysctl", "net.core.somaxconn", "4096", "64", ("n2",))
RETRIES = ValueChange("sysctl", "net.ipv4.tcp_retries2", "15", "7", HOSTS)
LIMIT = ValueChange("limits", "open files", "1024 4096", "64 64", ("n1",))
CODE = ValueChange("code", "file train.py", "a", "b", ())


def test_what_a_failing_check_reads_comes_first() -> None:
    first, *rest = rank(CODE, RETRIES, LIMIT, SOMAXCONN, findings=[("listen-queue-short", "n2")])
    assert (first.change, first.reason, first.checks) == (SOMAXCONN, "failing", ("listen-queue-short",))
    assert "failing" not in {ranked.reason for ranked in rest}
    assert rank(CODE, SOMAXCONN, LIMIT, findings=[("open-files-limit-low", "n1")])[0].change == LIMIT


def test_a_change_elsewhere_than_the_finding_comes_behind_one_there() -> None:
    on_n3 = msgspec.structs.replace(LIMIT, hosts=("n3",), now="64 65")
    ranking = rank(LIMIT, on_n3, findings=[("open-files-limit-low", "n3")])
    assert [ranked.change for ranked in ranking] == [on_n3, LIMIT]


def test_without_a_finding_nearness_to_the_job_and_messages_of_logs_decide() -> None:
    assert [ranked.change for ranked in rank(RETRIES, SOMAXCONN, CODE)] == [CODE, SOMAXCONN, RETRIES]
    assert rank(RETRIES)[0].checks == ()


def test_text_and_document() -> None:
    ranked = tuple(rank(RETRIES, SOMAXCONN, CODE, findings=[("listen-queue-short", "n2")]))
    hostile = ValueChange("packages", "x\x1b[31m", None, "1\n2", ("n3",))
    page = ChangesPage(
        before=alike("2026-11-20T10:00:00Z", a="1"),
        now=alike("2026-11-24T10:00:00Z", a="1"),
        worked=True,
        same_since="2026-11-22T10:00:00Z",
        changes=(*ranked, *rank(hostile)),
    )
    text = render(page, 0)
    assert (
        text.splitlines()[0]
        == "4 changes since 2026-11-20 10:00:00 UTC, the last run that worked; the likeliest cause of a failure first"
    )
    assert "\x1b" not in text
    assert "sysctl net.ipv4.tcp_retries2: 15 -> 7, on all 3 hosts" in text
    assert "packages x: not there -> 1 2, on n3" in text
    document = json.loads(render_json(page, 0))
    jsonschema.Draft202012Validator(json.loads(schema_file("changes").read_text("utf-8"))).validate(document)
    assert document["changes"][0]["name"] == "net.core.somaxconn"


TEXTS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4)
BY_HOST = st.dictionaries(
    st.text(max_size=4),
    st.dictionaries(st.text(max_size=4), st.dictionaries(st.text(max_size=4), TEXTS, max_size=3), max_size=3),
    max_size=3,
)


@given(BY_HOST, st.dictionaries(st.text(max_size=4), TEXTS, max_size=2))
def test_kept_values_come_back(
    hosts: dict[str, dict[str, dict[str, dict[str, str]]]], job: dict[str, dict[str, str]]
) -> None:
    run = RunValues("t", "check", "healthy", hosts, job)
    back = decode_values(encode_values(run), "t", "check", "healthy")
    assert compare_values(run, back) == ()
    assert back.job == job
    assert {
        host: {fact: kinds for fact, kinds in kinds_here.items() if kinds} for host, kinds_here in back.hosts.items()
    } == {host: {fact: kinds for fact, kinds in kinds_here.items() if kinds} for host, kinds_here in hosts.items()}


@given(st.binary(max_size=200))
def test_damaged_values_are_refused(data: bytes) -> None:
    with pytest.raises(UnusableValues):
        decode_values(data, "t", "check", "healthy")


def test_hosts_that_are_alike_cost_little() -> None:
    sysctl = {f"net.value{number}": str(number * 7919) for number in range(700)}
    entry = len(encode_values(values(n1={"sysctl": sysctl})))
    hosts = {f"n{number}": {"sysctl": {**sysctl, "net.own": str(number % 3)}} for number in range(200)}
    assert len(encode_values(values(**hosts))) < 2 * entry


def job_values(change: JobChange, folder: Path) -> RunValues:
    source = of_launch_line(change.line, {})
    run = Run(SCHEMA, "", "t", 0.0, {"n1": HostRecord(example_visit())}, launch=source.complete(LaunchOptions()))
    return values_of_run(run, example_reports.report(hosts=("n1",)), code_of_line(source.line))


def example_visit() -> msgspec.Struct:
    from doctor.engine.fact import Visit

    return Visit()


@pytest.mark.parametrize("change", JOB_CHANGES, ids=lambda change: change.name)
def test_a_change_of_the_job(change: JobChange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git/refs/heads").mkdir(parents=True)
    first = {".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": "a" * 40 + "\n"}
    (tmp_path / "pkg").mkdir()
    sources = {"train.py": "import torch\n", "pkg/model.py": "x = 1\n"}
    further = {"run.yaml": "lr: 1e-4\n", "tokens.bin": "a" * (17 << 20), "log.json": "{}", "metrics.txt": "1"}
    for name, text in {**first, **sources, **further}.items():
        (tmp_path / name).write_text(text)
    before = job_values(JobChange("", ""), tmp_path)
    (tmp_path / "log.json").write_text('{"loss": 1}')
    (tmp_path / "metrics.txt").write_text("2")
    assert compare_values(before, job_values(JobChange("", ""), tmp_path)) == ()
    for name, text in change.files:
        (tmp_path / name).write_text(text)
    changes = compare_values(before, job_values(change, tmp_path))
    assert (change.category, True) in [(entry.category, entry.name.startswith(change.name)) for entry in changes]
    assert all(entry.hosts == () for entry in changes)


def test_the_folder_of_a_wrapper_and_what_a_link_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"run.sh": ". ./env.sh\npython train.py\n", "env.sh": "export NCCL_DEBUG=WARN\n"}.items():
        (tmp_path / name).write_text(text)
    for folder in ("v1", "v2"):
        (tmp_path / folder).mkdir()
    (tmp_path / "data").symlink_to("v1")
    line = ("bash", "run.sh", "--data", "data")
    before = job_values(JobChange("", "", line), tmp_path)
    (tmp_path / "env.sh").write_text("export NCCL_DEBUG=INFO\n")
    (tmp_path / "data").unlink()
    (tmp_path / "data").symlink_to("v2")
    changes = compare_values(before, job_values(JobChange("", "", line), tmp_path))
    assert [change.name for change in changes] == ["file env.sh", "link data"]
    assert [change.now for change in changes][1] == str(tmp_path / "v2")


@pytest.mark.parametrize("limit", [("MAX_SOURCE_BYTES", 8), ("SOURCE_SECONDS", -1.0)])
def test_sources_that_are_too_many_are_not_compared(
    limit: tuple[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "a.py", "run.yaml"):
        (tmp_path / name).write_text("import torch\n")
    before = job_values(JobChange("", ""), tmp_path)
    monkeypatch.setattr(code_revision, *limit)
    (tmp_path / "run.yaml").write_text("lr: 3e-4\n")
    now = job_values(JobChange("", ""), tmp_path)
    for changes in (compare_values(before, now), compare_values(now, before)):
        assert [change.name for change in changes] == ["file run.yaml"]  # named on the line, whatever the folder holds
    gap = "not compared: sources in the program's folder, too many to be read"
    for one, other, told in ((before, now, True), (now, now, True), (before, before, False)):
        assert (gap in render(ChangesPage(before=one, now=other, worked=True, changes=()), 0)) == told


LONG_LINE = ("torchrun", "train.py", *(f"--option-{number}={'v' * 90}" for number in range(40)))


@pytest.mark.parametrize("options", [("--last=1", "--last=2"), ("--x=" + "v" * 9000, "--x=" + "v" * 8999 + "w")])
def test_a_change_at_the_end_of_a_long_launch_line(options: tuple[str, str], tmp_path: Path) -> None:
    before, now = (job_values(JobChange("", "", (*LONG_LINE, option)), tmp_path) for option in options)
    assert compare_values(before, before) == ()
    assert len(compare_values(before, now)) >= 1


def test_what_differs_in_long_values_is_shown() -> None:
    folders = ":".join(f"/opt/folder{number}" for number in range(40))
    change = ValueChange("environment", "LD_LIBRARY_PATH", f"/a:{folders}", f"/b:{folders}", ())
    line = change_line(change, Fleet(("n1",), 400))
    assert line == "environment LD_LIBRARY_PATH: /a:/opt/folder0:/opt/f... -> /b:/opt/folder0:/opt/f..."


def test_many_changes_of_one_category_hide_no_other() -> None:
    changes = [ValueChange("code", f"file {number}.py", "a", "b", ()) for number in range(60)]
    ranked = tuple(rank(*changes, ValueChange("drivers", "NPU driver", "1", "2", ("n1",))))
    text = render(ChangesPage(before=alike(), now=alike(), worked=True, changes=ranked), 0)
    assert "NPU driver: 1 -> 2" in text
    assert "... and 52 more" in text


def test_no_secret_is_kept(tmp_path: Path) -> None:
    line = ("env", "NCCL_TOKEN=hush-hush-1", "torchrun", "train.py", "--api-key", "hush-hush-2")
    kept = job_values(JobChange("", "", line), tmp_path)
    assert "hush" not in repr(kept)
