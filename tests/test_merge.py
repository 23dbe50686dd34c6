"""`doctor merge`: what is missing is never healthy, and no file, whatever it holds, breaks the others' judgement."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doctor.collect.collector_request import unique_facts
from doctor.collect.merge import node_files
from doctor.collect.merge.merge_records import MAX_AGE_DIFFERENCE, merge, slurm_job_run
from doctor.collect.merge.node_files import STDIN, read_node_files
from doctor.collect.merge.node_records import HostIdentity, NodeFiles, match_hosts, parse_node_record
from doctor.collect.node_lines import encode_lines
from doctor.engine.catalog import load_checks
from doctor.engine.fact import Output
from doctor.engine.record import BadRun, HostRecord, LaunchOptions, ProbeInputs, RankTableFile, Run, load_run
from doctor.engine.result import Outcome, Report, Status
from doctor.environment.inventory import Inventory
from doctor.job import LaunchConfig
from doctor.session.examine import examine
from doctor.session.examine_options import ExamineOptions
from doctor.session.replay import replay
from tests import preloaded
from tests.examples import examples
from tests.node_files import leave, line, run_of
from tests.test_cli import CLEAN, doctor

CHECKS = [check for check in load_checks() if check.area != "smoke"]
FACTS = unique_facts(fact for check in CHECKS for fact in check.facts)


def merged(folder: Path, *hosts: str, now: str = "") -> Run:
    """The run of what lies in the folder; without ``hosts``, none is expected."""
    fleet = Inventory(hosts, f"{len(hosts)} hosts") if hosts else None
    return merge(read_node_files([folder]), fleet, FACTS, "DIR", now)


def why(run: Run, host: str) -> str:
    """Why the host is unknown, or the empty string."""
    visit = run.hosts[host].visit
    assert visit.failure in ("", "no-file")
    return visit.text


def outcome(report: Report, name: str) -> Outcome:
    return next(entry for entry in report.outcomes if entry.check == name)


def test_a_pipe_without_a_writer_and_a_device_without_end_hold_no_record(tmp_path: Path, monkeypatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert read_node_files([pipe]).unusable == ()
    assert [entry.reason for entry in read_node_files([Path("/dev/zero")]).unusable] == ["not a regular file"]
    monkeypatch.setattr(node_files, "MAX_RECORD_BYTES", 1 << 16)
    monkeypatch.setattr(node_files, "MAX_UNUSABLE_BYTES", 1 << 19)
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as endless:
        assert endless.stdout
        reasons = [
            entry.reason for entry in read_node_files([Path(f"/proc/self/fd/{endless.stdout.fileno()}")]).unusable
        ]
        endless.kill()
    assert "too many lines" in reasons[-1] and len(reasons) < 12


class TestHosts:
    def test_stand_in_the_order_of_the_list(self, tmp_path: Path) -> None:
        leave(tmp_path, *(run_of(name) for name in ("a", "b", "c")))
        run = merged(tmp_path, "c", "a", "b")
        assert list(run.hosts) == ["c", "a", "b"]
        assert [host.visit.name for host in run.hosts.values()] == ["c", "a", "b"]
        assert run.notes == ()

    def test_without_a_file_are_unknown_and_not_guilty(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("a"))
        run = merged(tmp_path, "a", "b")
        assert why(run, "b") == "no file of this host in DIR; check that doctor node ran there"
        reached = outcome(replay(run, CHECKS), "host-unreachable")
        assert (reached.status, reached.evaluated_hosts, list(reached.unknown)) == (Status.UNKNOWN, ("a",), ["b"])

    def test_that_nobody_expects_are_said_and_not_judged(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("a"), run_of("z"))
        run = merged(tmp_path, "a")
        assert list(run.hosts) == ["a"]
        assert run.notes == (f"{tmp_path}/z.json: of a host that is not expected; ignored",)

    def test_are_what_is_there_where_no_list_is(self, tmp_path: Path) -> None:
        """And what left a broken file was there, too."""
        leave(tmp_path, *(run_of(f"n{number}") for number in (10, 9, 1)))
        (tmp_path / "n2.json").write_bytes(b"{")
        run = merged(tmp_path)
        assert list(run.hosts) == ["n1", "n2", "n9", "n10"]
        assert why(run, "n2") and "a host without a file is not noticed" in run.notes[0]

    def test_that_left_two_records_which_agree_are_judged_by_them(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("a", seconds=2.0))
        (tmp_path / "b.jsonl").write_bytes(line(run_of("A", seconds=1.0, started="2026-01-01T12:00:05Z")))
        run = merged(tmp_path, "a")
        assert run.seconds == 1.0
        note = f"A has more than one record: {tmp_path}/b.jsonl is used, {tmp_path}/a.json says the same"
        assert run.notes == (note,)


@pytest.mark.parametrize(
    ("expected", "host_identities", "results"),
    [
        (["n1", "n2"], [HostIdentity("n2"), HostIdentity("n1")], {"n1": 1, "n2": 0}),
        (["N1"], [HostIdentity("n1")], {"N1": 0}),
        (["n1"], [HostIdentity("n1.site.example")], {"n1": 0}),
        (["n1.site.example"], [HostIdentity("n1")], {"n1.site.example": 0}),
        (["n1.east"], [HostIdentity("n1.west")], {}),
        (["n1"], [HostIdentity("n1.east"), HostIdentity("n1.west")], {}),
        (["n1.east", "n1.west"], [HostIdentity("n1")], {}),
        (["n1", "n1.east"], [HostIdentity("n1.east"), HostIdentity("n1.west")], {"n1.east": 0, "n1": 1}),
        (["slurm7"], [HostIdentity("pod-x", self_name="slurm7.site")], {"slurm7": 0}),
        (
            ["10.0.0.2"],
            [HostIdentity("n1", addresses=("10.0.0.1",)), HostIdentity("n2", addresses=("10.0.0.2",))],
            {"10.0.0.2": 1},
        ),
        (["fd00:0::2"], [HostIdentity("n2", addresses=("fd00::2",))], {"fd00:0::2": 0}),
        (["172.17.0.1"], [HostIdentity(name, addresses=("172.17.0.1",)) for name in ("n1", "n2")], {}),
        (["127.0.0.1"], [HostIdentity("n1", addresses=("127.0.0.1",))], {}),
        (["n1", "10.0.0.1"], [HostIdentity("n1", addresses=("10.0.0.1",))], {"n1": 0}),
        (["10"], [HostIdentity("10.0.0.1")], {}),
    ],
)
def test_whose_record_it_is(expected: list[str], host_identities: list[HostIdentity], results: dict[str, int]) -> None:
    """A name that may mean two hosts means none."""
    assert match_hosts(expected, host_identities) == results


def test_a_large_fleet_is_matched_whole() -> None:
    hosts = [f"n{number}" for number in range(2000)]
    assert len(match_hosts(hosts, [HostIdentity(f"{host}.site") for host in hosts])) == 2000


def memory(size: str) -> dict[str, dict[str, Output]]:
    return {"Memory": {"/proc/meminfo": Output(out=f"MemAvailable: {size} kB\n")}}


class TestTheWordOfAnother:
    """What somebody else may put into the folder: a newer, healthy record of a host that is neither."""

    @pytest.mark.parametrize("later", ["11:59:00", "12:00:30"])
    @pytest.mark.parametrize("name", ["zz.jsonl", "all"])
    def test_two_records_that_disagree_are_no_record(self, tmp_path: Path, later: str, name: str) -> None:
        twin = line(run_of("n1", observed_outputs=memory("900000"), started=f"2026-01-01T{later}Z"))
        leave(tmp_path, run_of("n1", observed_outputs=memory("9")), run_of("n2"))
        (tmp_path / name).write_bytes(twin)
        run = merge(read_node_files([tmp_path, *([tmp_path / name] if name == "all" else [])]), TWO, FACTS, "DIR")
        assert "disagrees with" in why(run, "n1") and "about n1 (Memory); expected one record" in why(run, "n1")
        assert why(run, "n2") == ""

    def test_a_file_that_is_not_named_after_its_host_is_not_its_record(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("n2"))
        (tmp_path / "zz.json").write_bytes(line(run_of("n1")))
        run = merged(tmp_path, "n1", "n2")
        assert why(run, "n1").startswith("no file of this host")
        assert run.notes == (f"{tmp_path}/zz.json: holds the record of n1; expected it in n1.json",)

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")
    @pytest.mark.parametrize("named", [False, True])
    def test_nor_is_the_file_of_another_user(self, tmp_path: Path, named: bool) -> None:
        leave(tmp_path, run_of("n1"), run_of("n2"))
        os.chown(tmp_path / "n1.json", 65534, 65534)
        paths = sorted(tmp_path.glob("*.json")) if named else [tmp_path]
        run = merge(read_node_files(paths), TWO, FACTS, "DIR")
        assert "owned by user 65534; expected you, root, or the folder's owner" in why(run, "n1")
        assert why(run, "n2") == ""
        os.chown(tmp_path, 65534, 65534)
        assert why(merge(read_node_files(paths), TWO, FACTS, "DIR"), "n1") == ""

    @pytest.mark.parametrize("field", ["sent", "began", "ended", "received"])
    @pytest.mark.parametrize("shift", [-7200.0, 7200.0, 1e308, float("-inf")])
    def test_a_visit_of_another_time_than_its_run_is_none(self, tmp_path: Path, field: str, shift: float) -> None:
        run = run_of("n1")
        visit = run.hosts["n1"].visit
        moved = msgspec.structs.replace(visit, **{field: getattr(visit, field) + shift})
        hosts = {"n1": HostRecord(moved, run.hosts["n1"].outputs)}
        leave(tmp_path, msgspec.structs.replace(run, hosts=hosts), run_of("n2"))
        run = merged(tmp_path, "n1", "n2")
        assert "was not read when its run began" in why(run, "n1") or "not a saved run" in why(run, "n1")
        assert why(run, "n2") == ""

    def test_the_command_is_not_healthy(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("n1", observed_outputs=memory("9")))
        (tmp_path / "zz.jsonl").write_bytes(
            line(run_of("n1", observed_outputs=memory("9" * 9), started="2026-01-01T12:00:30Z"))
        )
        done = doctor("merge", str(tmp_path), "--expect", "n1", "--select", "host-unreachable", "-q", "-f", "oneline")
        assert done.returncode == 12
        assert "UNKNOWN" in str(done.stdout)


TWO = Inventory(("n1", "n2"), "2 hosts")
GOOD = run_of("a")


def changed(**fields: Any) -> bytes:
    return line(msgspec.structs.replace(GOOD, **fields))


class TestFilesThatCannotBeUsed:
    @pytest.mark.parametrize(
        ("data", "output"),
        [
            (b"", "not a saved run"),
            (line(GOOD)[:200], "not a saved run"),
            (b"[" * 100_000, "not a saved run"),
            (b'{"schema": 1}\n\n\n{}', "not a saved run"),
            (changed(schema="doctor.run/9"), "schema 'doctor.run/9', expected 'doctor.run/5'"),
            (changed(version="0.0.1"), "written by version 0.0.1 of doctor; expected"),
            (changed(hosts={}), "contains 0 hosts"),
            (changed(hosts={**GOOD.hosts, "b": GOOD.hosts["a"]}), "contains 2 hosts"),
            (changed(hosts={"../a": GOOD.hosts["a"]}), '"../a" is a file or folder'),
            (changed(started="yesterday"), "yesterday"),
            (changed(started="2026-01-01T12:00:00"), "has no time zone"),
            (changed(launch={"environ": {"A": 1}}), "Expected `str`, got `int` - at `$.launch.environ[...]`"),
            (changed(launch={"exec": "rm"}), "unknown field `exec` - at `$.launch`"),
            (changed(launch={"by_host": {"b": {}}}), "not written by doctor node"),
            (changed(rank_table={"path": "/t", "more": "x"}), "unknown field `more` - at `$.rank_table`"),
            (
                line(run_of("a")).replace(b'"local":true', b'"local":false'),
                "not written by doctor node on the host itself",
            ),
            (b"\x1b[31mred\n", "not a saved run"),
            (changed(started="{" * 5000), "Invalid isoformat string"),
            (changed(version="9" * 5000), "written by version 999"),
        ],
    )
    def test_make_their_host_unknown_and_say_why(self, tmp_path: Path, data: bytes, output: str) -> None:
        leave(tmp_path, run_of("b"))
        (tmp_path / "a.json").write_bytes(data)
        run = merged(tmp_path, "a", "b")
        assert why(run, "a").startswith(f"{tmp_path}/a.json: ") and output in why(run, "a")
        assert why(run, "a").isprintable() and len(why(run, "a")) < 400
        assert why(run, "b") == "" and run.notes == ()

    @pytest.mark.parametrize("field", ["started", "version"])
    def test_do_not_decide_how_long_an_error_is(self, field: str) -> None:
        run = load_run(changed(**{field: "\x1b[31m" + "9" * 5000}), "a")
        with pytest.raises(BadRun) as error:
            parse_node_record(run, "a")
        assert len(str(error.value)) < 400 and str(error.value).isprintable()

    def test_are_links_pipes_folders_and_what_is_too_large(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "files"
        folder.mkdir()
        (tmp_path / "secret").write_bytes(line(run_of("link")))
        (folder / "link.json").symlink_to(tmp_path / "secret")
        os.mkfifo(folder / "pipe.json")
        (folder / "folder.json").mkdir()
        monkeypatch.setattr(node_files, "MAX_RECORD_BYTES", 1 << 20)
        (folder / "large.json").write_bytes(b" " * (2 << 20))
        run = merged(folder, "link", "pipe", "folder", "large")
        assert [why(run, host).partition(".json: ")[2] for host in run.hosts] == [
            "a symbolic link; expected a file",
            "not a regular file",
            "Is a directory",
            "larger than 1 MiB",
        ]

    def test_of_no_expected_host_are_noted_and_bounded(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("a"))
        for number in range(50):
            (tmp_path / f"junk{number}.json").write_bytes(b"junk")
        run = merged(tmp_path, "a")
        assert len(run.notes) == 9 and run.notes[-1] == "42 more such files"

    def test_do_not_hide_a_good_record_elsewhere(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("a"))
        (tmp_path / "a.site.json").write_bytes(b"{")
        assert why(merged(tmp_path, "a"), "a") == ""

    def test_are_not_what_another_program_keeps_there(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("a"))
        for name in (".a.json.x1y2", ".hidden.json", "slurm-12.out"):
            (tmp_path / name).write_bytes(b"half")
        assert merged(tmp_path, "a").notes == ()

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60), deadline=None)
    @given(st.one_of(st.binary(max_size=300), st.integers(0, len(line(GOOD))).map(lambda size: line(GOOD)[:size])))
    def test_whatever_they_hold_the_host_is_there(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "a.json").write_bytes(data)
        report = replay(merged(tmp_path, "a"), CHECKS)
        assert report.hosts == ("a",)

    @settings(max_examples=examples(60), deadline=None)
    @given(
        st.dictionaries(
            st.sampled_from([fact.__name__ for fact in FACTS]),
            st.dictionaries(
                st.sampled_from(["", "0", "/x"]),
                st.builds(Output, out=st.sampled_from(["", "[]", "{}", "[" * 3000, "null"])),
            ),
            max_size=6,
        )
    )
    def test_what_a_host_said_crashes_nothing(self, outputs: dict[str, dict[str, Output]]) -> None:
        looks = tuple(parse_node_record(run_of(name, observed_outputs=outputs), name) for name in ("a", "b"))
        report = replay(merge(NodeFiles(looks), Inventory(("a", "b"), "2 hosts"), FACTS, "DIR"), CHECKS)
        assert [entry.check for entry in report.outcomes if entry.crashed] == []


def run_in(name: str, job: str, **more: Any) -> Run:
    """A host's run in this Slurm job."""
    return run_of(name, probe_inputs=ProbeInputs(job=job), **more)


class TestFilesOfAnEarlierRun:
    def test_make_their_host_unknown_for_it_may_be_dead(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("a"), run_of("b", started="2026-01-01T10:30:00Z"))
        run = merged(tmp_path, "a", "b")
        assert why(run, "b").startswith(f"{tmp_path}/b.json: 1.5 h older than {tmp_path}/a.json")
        assert run.started == "2026-01-01T12:00:00Z"

    def test_are_told_by_the_job_where_there_is_one(self, tmp_path: Path) -> None:
        leave(
            tmp_path,
            run_in("a", "12.1"),
            run_in("b", "12.0"),
            run_of("c"),
        )
        run = merged(tmp_path, "a", "b", "c", now="12.1")
        assert [why(run, host) for host in "ac"] == ["", ""]
        assert why(run, "b") == f"{tmp_path}/b.json: of Slurm job 12.0, this is 12.1"

    def test_name_their_job_in_words_that_harm_no_terminal(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("a", probe_inputs=ProbeInputs(job="\x1b[31m" + "9" * 9000)))
        assert why(merged(tmp_path, "a", now="7.0"), "a").isprintable()
        assert len(why(merged(tmp_path, "a", now="7.0"), "a")) < 300

    def test_a_wrong_clock_within_the_job_is_no_earlier_run(self, tmp_path: Path) -> None:
        late = "2026-01-01T10:00:00Z"
        leave(
            tmp_path,
            run_in("a", "7.0"),
            run_in("b", "7.0", started=late),
        )
        assert why(merged(tmp_path, "a", "b", now="7.0"), "b") == ""

    def test_all_old_alike_is_a_run_of_then(self, tmp_path: Path) -> None:
        """Kept files can be judged a year later."""
        leave(tmp_path, *(run_of(name, started="2020-01-01T00:00:00Z") for name in "ab"))
        assert [why(merged(tmp_path, "a", "b"), host) for host in "ab"] == ["", ""]
        assert MAX_AGE_DIFFERENCE.total_seconds() == 3600

    @pytest.mark.parametrize(
        ("environ", "name"),
        [({}, ""), ({"SLURM_JOB_ID": "9"}, "9.0"), ({"SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": "2"}, "9.2")],
    )
    def test_a_requeued_job_is_another(self, environ: dict[str, str], name: str) -> None:
        assert slurm_job_run(environ) == name


def npus(address: str) -> dict[str, dict[str, Output]]:
    return {"DeviceAddresses": {"0": Output(out=f"ipaddr:{address}\nnetmask:255.255.0.0\n")}}


class TestWhatOneHostAloneCannotTell:
    def test_clocks_are_not_compared(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("a"), run_of("b"))
        clocks = outcome(replay(merged(tmp_path, "a", "b"), CHECKS), "clocks-differ")
        assert (clocks.status, clocks.evaluated_hosts) == (Status.SKIPPED, ())
        assert "no second clock" in clocks.skipped["a"]

    def test_npus_that_no_other_host_pinged_are_unknown(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("a", observed_outputs=npus("29.1.0.1")), run_of("b", observed_outputs=npus("29.1.0.2")))
        pings = outcome(replay(merged(tmp_path, "a", "b"), CHECKS), "device-unreachable")
        assert pings.status is Status.UNKNOWN
        assert "node files contain no host-to-host round" in pings.unknown["a"].text

    def test_a_host_with_no_other_to_ping_is_not(self, tmp_path: Path) -> None:
        leave(tmp_path, run_of("a", observed_outputs=npus("29.1.0.1")))
        assert outcome(replay(merged(tmp_path, "a"), CHECKS), "device-unreachable").status is Status.SKIPPED

    def test_names_that_it_was_not_told_are_unknown_on_it(self, tmp_path: Path) -> None:
        def names(own_name: str) -> dict[str, dict[str, Output]]:
            responses = {"own": own_name, "names": {own_name: {"addresses": ["10.0.0.1"]}}, "fleet": 1}
            return {"HostNames": {"": Output(out=json.dumps(responses))}}

        leave(
            tmp_path,
            run_of("a", observed_outputs=names("a"), probe_inputs=ProbeInputs(hosts=("A", "b"))),
            run_of("b", observed_outputs=names("b")),
        )
        observed_outcome = outcome(replay(merged(tmp_path, "a", "b"), CHECKS), "host-name-unresolved")
        assert observed_outcome.status is Status.UNKNOWN and list(observed_outcome.unknown) == ["b"]
        assert "pass --expect to it as well" in observed_outcome.unknown["b"].text


class TestTheJob:
    def test_is_what_the_first_host_was_told_with_the_lists_own_slots(self, tmp_path: Path) -> None:
        environ = {"MASTER_ADDR": "a", "HCCL_CONNECT_TIMEOUT": "600"}
        leave(tmp_path, run_of("a", launch=LaunchOptions(environ=environ)), run_of("b"))
        run = merge(read_node_files([tmp_path]), Inventory(("a", "b"), "2 hosts", {"a": 8, "b": 4}), FACTS, "DIR")
        assert run.launch == LaunchOptions(
            environ=environ, ranks_per_host={"a": 8, "b": 4}, by_host={"a": {"MASTER_ADDR": "a"}, "b": {}}
        )

    def test_is_that_of_most_hosts_where_one_is_told_something_else(self, tmp_path: Path) -> None:
        reports = {"a": "localhost", "b": "a", "c": "a"}
        leave(
            tmp_path, *(run_of(name, launch=LaunchOptions(environ={"MASTER_ADDR": to})) for name, to in reports.items())
        )
        assert merged(tmp_path, "a", "b", "c").launch.environ == {"MASTER_ADDR": "a"}

    def test_that_differs_from_host_to_host_is_a_failure(self, tmp_path: Path) -> None:
        leave(tmp_path, *(run_of(name, launch=LaunchOptions(environ={"MASTER_ADDR": name})) for name in "ab"))
        assert outcome(replay(merged(tmp_path, "a", "b"), CHECKS), "launch-differs").status is Status.FAILED

    def test_keeps_each_hosts_own_interface_and_the_majoritys_master(self, tmp_path: Path) -> None:
        """An interface may have another name on each host: that makes no host the odd one out."""
        parameters = {
            "a": {"MASTER_ADDR": "x", "GLOO_SOCKET_IFNAME": "eth0"},
            "b": {"MASTER_ADDR": "a", "GLOO_SOCKET_IFNAME": "eno1"},
            "c": {"MASTER_ADDR": "a", "GLOO_SOCKET_IFNAME": "eno2"},
        }
        leave(tmp_path, *(run_of(name, launch=LaunchOptions(environ=environ)) for name, environ in parameters.items()))
        launch = merged(tmp_path, "a", "b", "c").launch
        assert launch.by_host == parameters
        assert launch.environ["MASTER_ADDR"] == "a"
        config = LaunchConfig.from_options(launch)
        assert {host: config.environ_of(host)["GLOO_SOCKET_IFNAME"] for host in parameters} == {
            "a": "eth0",
            "b": "eno1",
            "c": "eno2",
        }

    def test_has_the_first_rank_table_that_could_be_read(self, tmp_path: Path) -> None:
        bad, good = RankTableFile("/t", error="is not there"), RankTableFile("/t", "{}")
        leave(tmp_path, run_of("a", rank_table=bad), run_of("b", rank_table=good))
        assert merged(tmp_path, "a", "b").rank_table == good
        assert merged(tmp_path, "a").rank_table == bad

    def test_may_name_its_rank_table_by_a_link(self, tmp_path: Path) -> None:
        """Every field of a run that `doctor check` itself makes of a rank table is accepted."""
        (tmp_path / "table.json").write_text("{}")
        (tmp_path / "link.json").symlink_to("table.json")
        path, files = str(tmp_path / "link.json"), tmp_path / "files"
        created_run = examine(Inventory((), "no host"), [], ExamineOptions(), {}, rank_table=path).run
        assert created_run.rank_table == RankTableFile(path, "{}", link_target="table.json")
        files.mkdir()
        leave(files, run_of("a", rank_table=created_run.rank_table, launch=created_run.launch))
        run = merged(files, "a")
        assert (why(run, "a"), run.rank_table) == ("", created_run.rank_table)


def big(name: str) -> Run:
    """A run of many lines."""
    return run_of(name, observed_outputs={"Noise": {"": Output(out=random.Random(name).randbytes(4000).hex())}})


def of_lines(folder: Path, lines: Sequence[bytes], *hosts: str) -> Run:
    path = folder / "all"
    path.write_bytes(b"".join(lines))
    return merge(read_node_files([path]), Inventory(hosts, "hosts"), FACTS, "all")


class TestLines:
    def test_hold_one_record_each(self, tmp_path: Path) -> None:
        run = of_lines(tmp_path, [line(run_of(name)) for name in "abc"], "a", "b", "c")
        assert [why(run, host) for host in "abc"] == ["", "", ""] and run.notes == ()

    def test_may_have_the_labels_of_srun(self, tmp_path: Path) -> None:
        run = of_lines(tmp_path, [b"0: " + line(run_of("a")), b" 1: " + line(run_of("b"))], "a", "b")
        assert [why(run, host) for host in "ab"] == ["", ""]

    def test_that_are_broken_cost_their_own_host_alone(self, tmp_path: Path) -> None:
        lines = [b"a word before\n", line(run_of("a")), line(run_of("b"))[:150] + b"\n", b"\n", line(run_of("c"))[:-1]]
        run = of_lines(tmp_path, lines, "a", "b", "c")
        assert [bool(why(run, host)) for host in "abc"] == [False, True, False]
        assert [note.partition(": not a saved run")[0] for note in run.notes] == [
            f"{tmp_path}/all:1",
            f"{tmp_path}/all:3",
        ]

    def test_in_parts_may_come_in_any_order_and_behind_labels(self, tmp_path: Path) -> None:
        parts = [
            b"[1,0]<stdout>:" + encode_line for name in "ab" for encode_line in encode_lines(name, line(big(name)))
        ]
        assert len(parts) > 10
        run = of_lines(tmp_path, parts[::-1], "a", "b")
        assert [why(run, host) for host in "ab"] == ["", ""] and run.notes == ()

    def test_in_parts_of_which_one_is_cut_cost_their_own_host_alone(self, tmp_path: Path) -> None:
        first, second, third = (encode_lines(name, line(big(name))) for name in "abc")
        lost, swapped = [*first[:3], first[3][:200] + b"\n", *first[4:]], [second[1][:80] + second[0][80:], *second[1:]]
        run = of_lines(tmp_path, [*lost, *swapped, *third], "a", "b", "c")
        assert why(run, "a").startswith(f"{tmp_path}/all: {len(first) - 1} of {len(first)} lines of its record arrived")
        assert "do not form a record" in why(run, "b") or "lines of its record arrived" in why(run, "b")
        assert why(run, "c") == ""

    def test_that_unpack_to_more_than_any_record_are_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(node_files, "MAX_RECORD_BYTES", 1 << 20)
        run = of_lines(tmp_path, encode_lines("a", b" " * (64 << 20)), "a")
        assert "do not form a record" in why(run, "a")

    def test_may_be_pretty_where_the_file_is_one_hosts(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_bytes(msgspec.json.format(line(run_of("a")), indent=2))
        assert why(merged(tmp_path, "a"), "a") == ""

    def test_come_from_stdin_too(self, tmp_path: Path) -> None:
        assert Path("-") == STDIN
        arguments = ("merge", "-", "--expect", "a,b", "--select", "host-unreachable", "--json")
        done = doctor(*arguments, input=line(run_of("a")) + line(run_of("b")))
        report = json.loads(done.stdout)
        assert (done.returncode, report["hosts"], report["verdict"]) == (0, ["a", "b"], "healthy")
        assert report["source"] == "2 hosts from the command line, by node files in -"


class TestNoHost:
    """A run that was to judge hosts and has none is nothing, whatever holds for the job's settings alone."""

    @pytest.mark.parametrize(
        "arguments",
        [
            ["check", "--from"],
            ["check", "--on-unknown", "ok", "--from"],
            ["check", "--select", "launch-settings-invalid", "--from"],
            ["report"],
            ["fix", "--from"],
        ],
    )
    def test_no_command_is_healthy_without_a_host(self, tmp_path: Path, arguments: list[str]) -> None:
        run = msgspec.structs.replace(run_of("a"), hosts={}, source="4 hosts from the command line")
        (tmp_path / "run").write_bytes(msgspec.json.encode(run))
        done = doctor(*arguments, str(tmp_path / "run"))
        assert (done.returncode, b"HEALTHY" in done.stdout) == (78, False)
        assert arguments[0] == "fix" or b"NOTHING: no host was checked" in done.stdout


class TestTheCommand:
    def test_a_missing_host_is_no_verdict_but_unknown(self, tmp_path: Path) -> None:
        done = doctor("merge", str(leave(tmp_path, run_of("a"))), "--expect", "a,b", "--select", "host-unreachable")
        assert done.returncode == 12
        assert b"UNKNOWN" in done.stdout and b"no file of this host in" in done.stdout

    def test_what_it_saves_is_judged_alike(self, tmp_path: Path) -> None:
        folder = tmp_path / "files"
        folder.mkdir()
        leave(folder, run_of("a"), run_of("b", observed_outputs=npus("29.1.0.1")))
        arguments = ("merge", str(folder), "--expect", "c,a,b", "--json", "--save", str(tmp_path / "run"))
        now = json.loads(doctor(*arguments).stdout)
        later = json.loads(doctor("check", "--from", str(tmp_path / "run"), "--json").stdout)
        assert now["outcomes"] == later["outcomes"] and now["hosts"] == later["hosts"] == ["c", "a", "b"]

    @pytest.mark.parametrize(
        ("arguments", "code", "output"),
        [
            (["nowhere"], 78, "doctor: nowhere: No such file or directory; expected files written by doctor node"),
            (["."], 78, "doctor: .: no file of doctor node, and no host list; expected --expect NODES"),
            (["text"], 78, "doctor: text: not a saved run: JSON is malformed"),
            (["empty"], 78, "doctor: empty: not a saved run: it ends too early"),
            (["binary", "text"], 78, "doctor: binary:1: not a saved run: "),
            (["text", "--on-unknown", "ok"], 78, "doctor: text: not a saved run: "),
            (["folder/package.json"], 78, "doctor: folder/package.json: not a saved run: "),
            (["folder"], 78, "doctor: folder/package.json: not a saved run: "),
            ([".", "--expect", "n[1-"], 78, 'doctor: the command line: "n[1-"'),
            ([".", "--from", "x"], 2, "doctor: --from reads a saved run: expected it with doctor check"),
        ],
    )
    def test_bad_input_is_one_line(self, tmp_path: Path, arguments: list[str], code: int, output: str) -> None:
        contents = {"text": b"HEALTHY: 3 checks passed\n", "empty": b"", "binary": bytes(range(256)) * 9}
        (tmp_path / "folder").mkdir()
        others = ("folder/package.json", "folder/tsconfig.json")
        contents |= dict.fromkeys(others, b'{"name": "web", "version": "1.0"}')
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content)
        argv = [sys.executable, "-m", "doctor", "merge", *arguments]
        done = preloaded.run(argv, cwd=tmp_path, env=CLEAN, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(output) and done.stderr.count("\n") == 1


@pytest.mark.parametrize(("excluded", "code", "hosts"), [("a", 0, ["b"]), ("a,b", 78, None)])
def test_hosts_can_be_left_out_where_only_the_files_tell_of_them(
    tmp_path: Path, excluded: str, code: int, hosts: list[str] | None
) -> None:
    for name in ("a", "b"):
        leave(tmp_path, run_of(name))
    result = doctor("merge", str(tmp_path), "-x", excluded, "--select", "python3-missing", "-f", "json")
    assert result.returncode == code
    if hosts is not None:
        assert json.loads(result.stdout)["hosts"] == hosts
