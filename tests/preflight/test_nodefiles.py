"""Lists of hosts, as those read them for whom they are written."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.record import LaunchOptions, RankTableFile
from doctor.engine.result import Report
from doctor.hosts import hostfile
from doctor.hosts.nodeset import expand_nodeset
from doctor.preflight.node_lists import FORMATS, NodeListError, format_conflict, render, write_node_lists
from doctor.preflight.spares import SpareSelection
from tests.checks import tables
from tests.hosts.slurm import needs_mpirun
from tests.preflight.runs import run

FLEET = (
    "node010",
    "node009",
    "node011",
    "r1n1-ib",
    "gpu.example.com",
    "r1n2",
    "r2n2",
    "10.0.0.7",
    "10.0.0.8",
    "fe80::7",
)
SLOTS = dict.fromkeys(FLEET, 8)

label = st.from_regex(r"[A-Za-z_]([A-Za-z0-9_.-]{0,12}[A-Za-z0-9_])?", fullmatch=True)
address = st.ip_addresses().map(str)
names = st.lists(label | address, unique_by=str.lower, max_size=12)


class NodeFileOptions(msgspec.Struct):
    write_nodes: str = ""
    write_bad: str = ""
    node_format: str = "plain"


def test_plain_and_comma_keep_the_order() -> None:
    assert render("plain", ("b", "a")) == "b\na\n"
    assert render("comma", ("b", "a")) == "b,a\n"


def test_no_hosts_are_an_empty_file() -> None:
    assert {render(form, ()) for form in FORMATS if form != "ranktable"} == {""}


def test_folded_is_a_node_set() -> None:
    assert render("folded", FLEET[:3]) == "node[009-011]\n"
    text = render("folded", FLEET)
    assert sorted(NodeSet(text.rpartition(",")[0])) == sorted(FLEET[:-1])
    assert text.endswith(",fe80::7\n")


@given(names)
def test_what_is_folded_is_read_back_as_the_same_hosts(hosts: list[str]) -> None:
    text = render("folded", hosts)
    assert (sorted(expand_nodeset(text, "here")) if hosts else text) == (sorted(hosts) if hosts else "")


@given(names, st.integers(1, 64))
def test_hostfiles_are_read_back_as_they_were_written(hosts: list[str], slots: int) -> None:
    for form in ("openmpi", "deepspeed"):
        text = render(form, hosts, dict.fromkeys(hosts, slots))
        results = [(line.host, line.slots) for line in hostfile.parse_hostfile(text, "here")] if hosts else []
        assert results == [(host, slots) for host in hosts]


def test_open_mpi_counts_slots_itself_where_they_are_not_known() -> None:
    assert render("openmpi", ("a", "b"), {"a": 2}) == "a slots=2\nb\n"


def test_deepspeed_has_no_such_way_and_nothing_is_guessed() -> None:
    with pytest.raises(NodeListError, match="deepspeed needs the slots of b; expected --ranks-per-host N"):
        render("deepspeed", ("a", "b"), {"a": 2})


def test_cordoning_is_a_shell_script_with_a_line_a_host() -> None:
    lines = render("k8s-cordon", ("a", "b;reboot")).splitlines()
    assert lines[0].startswith("# ")
    assert [shlex.split(line) for line in lines[1:]] == [["kubectl", "cordon", host] for host in ("a", "b;reboot")]


@pytest.mark.skipif(not shutil.which("scontrol"), reason="needs Slurm's scontrol")
def test_slurm_reads_its_list(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=t\nSlurmctldHost=localhost\nAuthType=auth/none\n")
    hosts = [*FLEET, "n1", "n01", "n2", "r1c1", "r1c2", "r2c2"]
    done = subprocess.run(
        ["scontrol", "show", "hostnames", render("slurm-exclude", hosts).strip()],
        env={**os.environ, "SLURM_CONF": str(conf)},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert sorted(done.stdout.split()) == sorted(hosts), done.stderr


@needs_mpirun
def test_open_mpi_reads_its_hostfile(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(render("openmpi", ("node2", "node1"), {"node2": 2, "node1": 3}))
    arguments = [
        "mpirun",
        "--allow-run-as-root",
        "--hostfile",
        str(path),
        "-n",
        "5",
        "--do-not-launch",
        "--display-map",
    ]
    done = subprocess.run([*arguments, "true"], capture_output=True, text=True, timeout=20)
    parts = [line.split() for line in done.stdout.splitlines() if "Data for node" in line]
    assert [(options[3], options[6]) for options in parts] == [("node2", "2"), ("node1", "3")], (
        done.stdout + done.stderr
    )


@pytest.mark.parametrize(
    ("form", "nodes", "bad", "refused"),
    [
        ("plain", "n", "", ""),
        ("k8s-cordon", "n", "b", ""),
        ("ranktable", "n", "b", ""),
        ("ranktable", "", "b", "--node-format ranktable is for the list of healthy hosts; expected --write-nodes FILE"),
        (
            "slurm-exclude",
            "n",
            "",
            "--node-format slurm-exclude is for the list of bad hosts; expected --write-bad FILE",
        ),
    ],
)
def test_a_format_that_no_file_can_have_is_refused(form: str, nodes: str, bad: str, refused: str) -> None:
    assert format_conflict(form, nodes, bad) == refused


def choice(hosts: tuple[str, ...], *left_out: str, **more: Any) -> SpareSelection:
    """Some hosts of a fleet whose ranks a rank table places."""
    table = RankTableFile("/job/table.json", json.dumps(tables.a2(3, 2)))
    created_run = run(dict.fromkeys(("node_0", "node_1", "node_2"), 5), rank_table=table)
    report = Report(created_run.source, tuple(created_run.hosts), ())
    whys = dict.fromkeys(left_out, ("gauge-low",))
    return SpareSelection(**{"hosts": hosts, "excluded": whys, "report": report, "run": created_run, **more})


class TestWriting:
    def test_both_files_each_in_a_format_that_it_can_have(self, tmp_path: Path) -> None:
        nodes, bad = tmp_path / "nodes", tmp_path / "bad"
        expected = NodeFileOptions(str(nodes), str(bad), "slurm-exclude")
        assert write_node_lists(choice(("node_1",), "node_0", "node_2"), expected) == []
        assert (nodes.read_text(), bad.read_text()) == ("node_1\n", "node_[0,2]\n")

    def test_slots_come_from_the_rank_table_unless_they_were_given(self, tmp_path: Path) -> None:
        path = tmp_path / "nodes"
        spare_selection = choice(("node_1",))
        assert write_node_lists(spare_selection, NodeFileOptions(str(path), node_format="deepspeed")) == []
        assert path.read_text() == "node_1 slots=2\n"
        run_ = msgspec.structs.replace(spare_selection.run, launch=LaunchOptions(ranks_per_host=4))
        assert (
            write_node_lists(
                msgspec.structs.replace(spare_selection, run=run_), NodeFileOptions(str(path), node_format="openmpi")
            )
            == []
        )
        assert path.read_text() == "node_1 slots=4\n"

    def test_a_list_for_too_few_hosts_is_empty(self, tmp_path: Path) -> None:
        """A script that forgets the exit code must not start on them, nor on those of an earlier run."""
        nodes, bad = tmp_path / "nodes", tmp_path / "bad"
        nodes.write_text("node_0\nnode_1\n")
        assert (
            write_node_lists(choice(("node_1",), "node_0", enough=False), NodeFileOptions(str(nodes), str(bad))) == []
        )
        assert (nodes.read_text(), bad.read_text()) == ("", "node_0\n")

    def test_a_rank_table_is_reduced_and_checked(self, tmp_path: Path) -> None:
        path = tmp_path / "table.json"
        assert (
            write_node_lists(
                choice(("node_0", "node_2"), "node_1"), NodeFileOptions(str(path), node_format="ranktable")
            )
            == []
        )
        table = tables.table(path.read_text())
        assert [server.server_id for server in table.servers] == ["node_0", "node_2"]
        assert [rank.rank_id for rank in table.ranks] == [0, 1, 2, 3]

    def test_one_that_our_own_checks_refuse_is_not_written(self, tmp_path: Path) -> None:
        path = tmp_path / "table.txt"
        (line,) = write_node_lists(choice(("node_0",)), NodeFileOptions(str(path), node_format="ranktable"))
        assert "rank-table-path-refused: the name of" in line
        assert line.endswith("does not end in .json; it was not written")
        assert not path.exists()

    def test_none_is_written_for_too_few_hosts_or_without_a_table(self, tmp_path: Path) -> None:
        expected = NodeFileOptions(str(tmp_path / "t.json"), node_format="ranktable")
        few = choice(("node_1",), "node_0", enough=False, obstacles=("1 host is healthy, 2 needed",))
        assert write_node_lists(few, expected)[0].endswith("1 host is healthy, 2 needed; it was not written")
        bare = choice(("node_1",), run=run({"node_1": 5}))
        assert "there is no rank table to reduce" in write_node_lists(bare, expected)[0]
        assert list(tmp_path.iterdir()) == []

    def test_a_file_that_cannot_be_written_is_a_line(self, tmp_path: Path) -> None:
        expected = NodeFileOptions(str(tmp_path / "no" / "nodes"), str(tmp_path / "bad"))
        (line,) = write_node_lists(choice(("node_1",), "node_0"), expected)
        assert line.startswith("--write-nodes ")
        assert line.endswith("/no/nodes: No such file or directory; it was not written")
        assert (tmp_path / "bad").read_text() == "node_0\n"
