"""A saved run with fields missing, unknown, wrongly typed or null: a default, or one line with the field's name."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.cli.app import application
from doctor.engine.catalog import load_checks
from doctor.engine.check import Check
from doctor.engine.errors import CommandError
from doctor.engine.exit_code import exit_code
from doctor.engine.fact import Output, Visit
from doctor.engine.record import (
    EARLIER_SCHEMAS,
    SCHEMA,
    BadRun,
    HostRecord,
    LaunchOptions,
    OptionProblem,
    ProbeInputs,
    RankTableFile,
    Run,
    load_run,
)
from doctor.engine.watch_summary import WatchResult
from doctor.report.formats.registry import FORMATS, RenderContext, render
from doctor.session.replay import load, replay
from doctor.smoke.model import Failure
from tests import preloaded
from tests.attack.hostile import record
from tests.checks import tables
from tests.checks.smoke import ran
from tests.examples import examples
from tests.node_files import run_of

ROOT = Path(__file__).parents[1]
EXITS = {0, 10, 11, 12}
"""The exit codes of a run that was evaluated."""
Capture = pytest.CaptureFixture[str]


def valid_run() -> dict[str, Any]:
    """A run that has every field, as its JSON document."""
    outputs = {"HostAddresses": {"": Output(out=json.dumps([["eth0", "10.0.0.1", 24]]))}}
    visit = Visit(began=1.0, ended=2.0, sent=1.0, received=2.0, python="3.11.2", uid=0, name="w1")
    run = Run(
        SCHEMA,
        "2 hosts",
        "2026-01-01T00:00:00Z",
        1.0,
        {"w1": HostRecord(visit, outputs), "w2": HostRecord(Visit("refused", "connection refused"))},
        ProbeInputs(hosts=("w1", "w2"), python="python3", master_addr="w1", ports=(29500,), rank_table="/t", job="1.0"),
        LaunchOptions(
            environ={"MASTER_ADDR": "w1"},
            framework="torch",
            master_addr="w1",
            master_port=29500,
            world_size=4,
            ranks_per_host={"w1": 2, "w2": 2},
            rank_table="/t",
            python="python3",
            product="A2",
            by_host={"w1": {"MASTER_ADDR": "w1"}, "w2": {}},
            read_from="the launch line",
            launch_line="torchrun --nnodes 2 t.py",
            launchers=("torchrun",),
            starts_here=True,
            store_by_name=True,
            announces_name=True,
            nodes=2,
            max_nodes=2,
            node_rank=0,
            outer_nodes=2,
            outer_tasks=2,
            outer_by_directive=True,
            places={"MASTER_ADDR": "run.sh:2"},
            others=(LaunchOptions(master_addr="w3"),),
            option_problems=(OptionProblem("torchrun", "--tee", "x", "a number"),),
            starts_whole_job=True,
            first_task_host="w1",
            limits={"n": "4096"},
            differing={"MASTER_ADDR": "$(hostname)"},
            unresolved={"NCCL_DEBUG": "$(x)"},
            time_limit_s=600.0,
            time_left_s=540.0,
        ),
        RankTableFile("/t", json.dumps(tables.a2(2, 2)), link_target="/shared/t"),
        ("a note",),
        "1.0",
        msgspec.to_builtins(ran(4, 2, Failure("blocked", culprit_ranks=(1,), waiting_ranks=(0, 2, 3))), str_keys=True),
        ("rank-blocked", "host-unreachable"),
        "the job has 4 hosts or more",
        training={"jobs": [{"launch": {"nodes": {"option": "--nnodes", "value": 2}}}]},
        watch=msgspec.to_builtins(WatchResult(hosts={0: "w1", 1: "w2"}), str_keys=True),
        after_reboot=False,
        other_rank_tables={"/u": RankTableFile("/u", "{}")},
        texts={"no {0} on {1}": [["link", "w1"]]},
    )
    document: dict[str, Any] = json.loads(msgspec.json.encode(run))
    return document


VALID = valid_run()
REQUIRED = ("schema", "source", "started", "seconds", "hosts")
SECTIONS: dict[str, type[msgspec.Struct]] = {
    "launch": LaunchOptions,
    "probe_inputs": ProbeInputs,
    "rank_table": RankTableFile,
}
FIELDS = [
    *((name,) for name in Run.__struct_fields__),
    *((section, name) for section, kind in SECTIONS.items() for name in kind.__struct_fields__),
]
OPTIONAL = [path for path in FIELDS if path[0] not in REQUIRED]
NULLABLE = [
    ("launch", name)
    for name in (
        "master_port",
        "world_size",
        "ranks_per_host",
        "nodes",
        "max_nodes",
        "node_rank",
        "outer_nodes",
        "outer_tasks",
        "time_limit_s",
        "time_left_s",
    )
]


def changed(path: tuple[str, ...], change: Callable[[dict[str, Any], str], object]) -> bytes:
    """The valid run, after ``change(parent, key)`` at ``path``."""
    document = copy.deepcopy(VALID)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return json.dumps(document).encode()


def set_to(value: object) -> Callable[[dict[str, Any], str], object]:
    return lambda parent, key: parent.__setitem__(key, value)


@pytest.fixture(params=["check", "report"])
def doctor(request: pytest.FixtureRequest, tmp_path: Path, capsys: Capture) -> Callable[[bytes], tuple[int, str]]:
    """Gives a file to `doctor check --from`, or to `doctor report`: the exit code and stderr."""

    def run_command(data: bytes) -> tuple[int, str]:
        path = tmp_path / "run.json"
        path.write_bytes(data)
        argv = ["check", "--from", str(path)] if request.param == "check" else ["report", str(path)]
        capsys.readouterr()
        try:
            application(argv)(argv)
        except CommandError as error:
            return error.exit_code, f"{error}"
        except SystemExit as end:
            return int(end.code or 0), capsys.readouterr().err
        return 0, capsys.readouterr().err

    return run_command


Doctor = Callable[[bytes], tuple[int, str]]


def test_a_run_with_every_field_is_evaluated(doctor: Doctor) -> None:
    code, error = doctor(json.dumps(VALID).encode())
    assert (code in EXITS, error) == (True, "")
    given = {**VALID, "after_reboot": True}
    assert all(given[path[0]] if len(path) == 1 else VALID[path[0]].get(path[1], "") is not None for path in FIELDS)


@pytest.mark.parametrize("path", OPTIONAL, ids=".".join)
def test_a_missing_field_has_its_default(doctor: Doctor, path: tuple[str, ...]) -> None:
    code, error = doctor(changed(path, lambda parent, key: parent.pop(key, None)))
    assert (code in EXITS, error) == (True, "")


@pytest.mark.parametrize("section", [*SECTIONS, "smoke", "checks", "notes"])
def test_an_empty_section_is_one_that_is_not_given(doctor: Doctor, section: str) -> None:
    code, error = doctor(changed((section,), set_to([] if section in ("checks", "notes") else {})))
    assert (code in EXITS, error) == (True, "")


@pytest.mark.parametrize("name", REQUIRED[1:])
def test_a_required_field_is_named(doctor: Doctor, name: str) -> None:
    code, error = doctor(changed((name,), lambda parent, key: parent.pop(key)))
    assert code == 78 and f"missing required field `{name}`" in error and "\n" not in error


@pytest.mark.parametrize("path", [(), *((name,) for name in SECTIONS), ("hosts", "w1")], ids=".".join)
def test_an_unknown_field_is_named(doctor: Doctor, path: tuple[str, ...]) -> None:
    code, error = doctor(changed((*path, "bogus"), set_to(1)))
    assert code == 78 and "unknown field `bogus`" in error and "\n" not in error
    assert not path or f"`$.{path[0]}" in error


@pytest.mark.parametrize("path", FIELDS, ids=".".join)
@pytest.mark.parametrize("value", [None, True, "{'a': 1}", -1, [[]], {"a": [1]}], ids=repr)
def test_a_wrong_type_is_named(path: tuple[str, ...], value: object) -> None:
    data = changed(path, set_to(value))
    if _is_right(path, value):
        assert load(data, "f")
        return
    with pytest.raises(BadRun) as refusal:
        load(data, "f")
    assert "\n" not in str(refusal.value)
    assert f"`$.{'.'.join(path)}" in str(refusal.value) or (path == ("schema",) and isinstance(value, str))


def _is_right(path: tuple[str, ...], value: object) -> bool:
    """Whether the value is of the field's type after all."""
    valid: Any = VALID
    for key in path:
        valid = valid.get(key, "")
    if value is True and isinstance(valid, bool):
        return True
    is_text = isinstance(value, str) and isinstance(valid, str) and path != ("schema",)
    return is_text or (value is None and path in NULLABLE) or (value == -1 and path == ("seconds",))


@pytest.mark.parametrize("path", [path for path in FIELDS if path not in (*NULLABLE, ("schema",))], ids=".".join)
def test_null_is_one_line_of_the_command(doctor: Doctor, path: tuple[str, ...]) -> None:
    code, error = doctor(changed(path, set_to(None)))
    assert code == 78 and f"`$.{'.'.join(path)}" in error and "\n" not in error


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("smoke", "ended"), "somehow", "$.smoke.ended"),
        (("smoke", "plan"), {}, "$.smoke.plan"),
        (("smoke", "plan", "places", "1"), {"rank": 7, "host": "w1"}, "$.smoke.plan.places[1].rank"),
        (("smoke", "failures", "0"), {"kind": "blocked", "culprit_ranks": [9]}, "$.smoke.failures[0].culprit_ranks"),
        (("smoke", "groups"), {"0": ["world", [-1]]}, "$.smoke.groups[0]"),
        (("smoke",), {"not_started": 3}, "$.smoke.not_started"),
        (("launch", "ranks_per_host"), {"w1": "8"}, "$.launch.ranks_per_host[...]"),
        (("launch", "master_port"), 65536, "$.launch.master_port"),
        (("hosts", "w1", "visit"), {"trouble": "refused"}, "$.hosts[...].visit"),
    ],
)
def test_a_wrong_value_within_a_field_is_named(
    doctor: Doctor, path: tuple[str, ...], value: object, field: str
) -> None:
    def change(parent: Any, key: str) -> None:
        parent[int(key) if isinstance(parent, list) else key] = value

    code, error = doctor(changed(path, change))
    assert code == 78 and f"`{field}`" in error and "\n" not in error


@cache
def catalog() -> tuple[Check, ...]:
    return tuple(load_checks())


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NUMBERS = st.integers(-(2**70), 2**70) | st.integers(-3, 5)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_a_mutated_run_is_evaluated_or_is_one_line(data: st.DataObject) -> None:
    document = copy.deepcopy(VALID)
    for _ in range(data.draw(st.integers(1, 3), "mutations")):
        path = data.draw(st.sampled_from([path for path in _paths(document) if path]), "path")
        parent: Any = document
        for key in path[:-1]:
            parent = parent[key]
        old = parent[path[-1]]
        action = data.draw(st.sampled_from(["replace", "same type", "remove", "add"]), "action")
        if action == "remove":
            del parent[path[-1]]
        elif action == "add" and isinstance(old, dict):
            old[data.draw(st.text(max_size=8), "key")] = data.draw(ANYTHING, "value")
        elif action == "same type" and isinstance(old, (int, float)):
            parent[path[-1]] = data.draw(NUMBERS, "number")
        elif action == "same type" and isinstance(old, str):
            parent[path[-1]] = data.draw(st.text(max_size=20), "text")
        else:
            parent[path[-1]] = data.draw(ANYTHING, "value")
    try:
        run = load(json.dumps(document).encode(), "f")
    except BadRun as error:
        assert str(error).startswith("f: ") and "\n" not in str(error)
        return
    report = replay(run, catalog())
    code = exit_code(report, strict=True)
    assert code in EXITS, [outcome.crashed for outcome in report.outcomes if outcome.crashed]
    for name in FORMATS:
        render(name, report, RenderContext(code, {check.name: check for check in catalog()}))


FORM = {
    "HostRecord": ("outputs", "visit"),
    "LaunchOptions": (
        "announces_name",
        "by_host",
        "differing",
        "environ",
        "first_task_host",
        "framework",
        "launch_line",
        "launchers",
        "limits",
        "master_addr",
        "master_port",
        "max_nodes",
        "node_rank",
        "nodes",
        "option_problems",
        "others",
        "outer_by_directive",
        "outer_nodes",
        "outer_tasks",
        "places",
        "product",
        "python",
        "rank_table",
        "ranks_per_host",
        "read_from",
        "starts_here",
        "starts_whole_job",
        "store_by_name",
        "time_left_s",
        "time_limit_s",
        "unresolved",
        "world_size",
    ),
    "Output": ("code", "cut", "ended", "err", "out", "seconds"),
    "ProbeInputs": (
        "announces_name",
        "folders",
        "hosts",
        "job",
        "master_addr",
        "paths",
        "ports",
        "python",
        "rank_table",
        "temporary_folder",
    ),
    "Run": (
        "after_reboot",
        "checks",
        "hosts",
        "hosts_unknown",
        "launch",
        "notes",
        "other_rank_tables",
        "probe_inputs",
        "rank_table",
        "schema",
        "seconds",
        "smoke",
        "source",
        "started",
        "texts",
        "training",
        "version",
        "watch",
    ),
    "RankTableFile": ("error", "link_target", "path", "text"),
    "Visit": (
        "address",
        "began",
        "ended",
        "failure",
        "hint",
        "local",
        "name",
        "python",
        "received",
        "sent",
        "text",
        "uid",
    ),
}
"""The fields of `doctor.run/5`."""


def test_a_changed_form_has_a_new_number() -> None:
    """Whoever changes a field raises the number, keeps the form before readable, and writes the new one here."""
    kinds = (HostRecord, LaunchOptions, Output, ProbeInputs, Run, RankTableFile, Visit)
    now = {kind.__name__: tuple(sorted(kind.__struct_encode_fields__)) for kind in kinds}
    assert (SCHEMA, now) == ("doctor.run/5", FORM)


@pytest.mark.parametrize("schema", EARLIER_SCHEMAS)
def test_a_run_of_an_earlier_form_is_read_and_a_note_names_what_is_missing(schema: str) -> None:
    saved = valid_run()
    full = load_run(json.dumps(saved).encode(), "now")
    earlier = {**copy.deepcopy(saved), "schema": schema}
    assert load_run(json.dumps(earlier).encode(), "x") == full
    earlier["given"] = {"a": 1}
    earlier["launch"]["given"] = ["b"]
    earlier["hosts"]["w1"]["seen"] = 1
    run = load_run(json.dumps(earlier).encode(), "x")
    note = f"the run was saved in an earlier form, {schema}: given, hosts.seen, launch.given cannot be read any more"
    assert run == msgspec.structs.replace(full, notes=(*full.notes, note))


@pytest.mark.parametrize("schema", [SCHEMA, "doctor.run/5", *EARLIER_SCHEMAS])
def test_what_is_wrong_in_a_run_is_wrong_in_each_form(schema: str) -> None:
    saved = {**valid_run(), "schema": schema, "seconds": "long"}
    with pytest.raises(BadRun, match=r"seconds"):
        load_run(json.dumps(saved).encode(), "x")


def test_a_run_without_a_newer_fact_is_as_healthy_for_check_as_for_report(tmp_path: Path) -> None:
    """A saved run of an earlier version: what nobody has read makes no host unknown, and one line names it."""
    run = run_of("n1", observed_outputs={"ListenQueues": record().outputs["ListenQueues"]})
    path = tmp_path / "old.run"
    path.write_bytes(msgspec.json.encode(run))
    codes = []
    for words in (["check", "--from", str(path)], ["report", str(path)]):
        done = preloaded.run([sys.executable, "-m", "doctor", *words], cwd=ROOT, capture_output=True, text=True)
        codes.append(done.returncode)
        assert "not judged, since this run was recorded without" in done.stdout, done.stdout
        assert "facts were not collected" in done.stdout
    assert codes == [0, 0]
    named = ["check", "--from", str(path), "--select", "neighbour-table-small"]
    done = preloaded.run([sys.executable, "-m", "doctor", *named], cwd=ROOT, capture_output=True, text=True)
    assert "was not collected in this run" in done.stdout and "1 check unknown" in done.stdout
