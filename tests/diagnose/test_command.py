from __future__ import annotations

import io
import json
import os
import tarfile
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from doctor.cli.app import application

LOGS = Path(__file__).with_name("logs")
SCHEMA = json.loads(files("doctor.report").joinpath("schema/doctor.diagnosis.1.json").read_text("utf-8"))


def run(*arguments: str, text: bytes | None = None):
    return CliRunner().invoke(application(["diagnose"]), ["diagnose", *arguments], input=text)


@pytest.mark.parametrize("name", ["hccl_ei0015", "afd_socket_p2p", "afd_notify_deadlock", "ms_hbm", "hccl_ei0013"])
def test_the_json_document_obeys_its_published_schema(name: str) -> None:
    result = run(*(str(path) for path in sorted(LOGS.glob(f"{name}*.log"))), "--json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, SCHEMA)
    assert document["exit_code"] == result.exit_code


def test_the_first_line_names_the_rank_and_each_proof_its_file_and_line() -> None:
    result = run(str(LOGS / "afd_notify_chain_to_local.dev*.log"))
    assert result.exit_code == 10
    assert "rank 2" in result.stdout.splitlines()[0]
    assert "afd_notify_chain_to_local.dev2.log:5" in result.stdout


def test_a_log_cannot_write_escapes_or_markup_into_the_report(tmp_path: Path) -> None:
    evil = b"ValueError: \x1b]0;owned\x07\x1b[2J [link](http://x) `code` <b>\xe2\x80\xae\n"
    (tmp_path / "rank_0.log").write_bytes(evil)
    for form in ("human", "plain", "md", "json"):
        text = run(str(tmp_path), "-f", form, "--color", "never").stdout
        assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert "](http" not in run(str(tmp_path), "-f", "md").stdout.replace("`", "").split("ValueError")[0]


def test_standard_input_is_read() -> None:
    result = run("-", text=b"[rank2]: ValueError: bad batch\n")
    assert result.exit_code == 10 and "rank 2" in result.stdout


@pytest.mark.parametrize("arguments", [["-f", "xml", "."], ["--color", "red", "."]])
def test_a_bad_option_is_a_usage_error(arguments: list[str]) -> None:
    assert getattr(run(*arguments).exception, "exit_code", run(*arguments).exit_code) == 2


def test_a_missing_path_is_an_input_error() -> None:
    assert getattr(run("/no/such/logs").exception, "exit_code", 0) == 78


def test_pseudonyms_replace_hosts_and_addresses() -> None:
    text = run(str(LOGS / "hccl_heartbeat_lost.log"), "--redact").stdout
    output = run(str(LOGS / "afd_notify_chain_to_local.dev*.log"), "--redact").stdout
    assert "10.136.181.175" not in output and "HCCL" in text


def test_list_and_explain_show_signatures() -> None:
    runner = CliRunner()
    listed = runner.invoke(application(["list"]), ["list", "--signatures", "EI0015"])
    assert "ei0015-rootinfo-missing-ranks" in listed.stdout
    none = runner.invoke(application(["list"]), ["list", "--signatures", "nosuchword"])
    assert (none.exit_code, str(none.exception)) == (
        1,
        "no signature has the word 'nosuchword'; `doctor list --signatures` names them all",
    )
    as_json = runner.invoke(application(["list"]), ["list", "--signatures", "EI0015", "--json"]).stdout
    assert {entry["id"] for entry in json.loads(as_json)} >= {"ei0015-rootinfo-missing-ranks"}
    assert all("ei0015" in json.dumps(entry).lower() for entry in json.loads(as_json))
    page = runner.invoke(application(["explain"]), ["explain", "EI0015"]).stdout
    assert "Fix\n---" in page


def test_the_names_in_an_archive_cannot_write_escapes_into_the_report(tmp_path: Path) -> None:
    path = tmp_path / "logs.tar"
    data = b"[rank1]: ValueError: bad batch\n"
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("node1/\x1b[31mred\x1b]0;owned\x07.log")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    os.symlink(path, os.fsencode(tmp_path) + b"/\xff\x1b[2J.tar")
    for form in ("human", "plain", "md", "json", "jsonl"):
        for name in os.listdir(tmp_path):
            text = run(str(tmp_path / name), "-f", form, "--color", "never").stdout
            assert "red" in text and "\x1b" not in text and "\x07" not in text


def test_the_command_that_a_report_prints_for_the_next_job_is_accepted() -> None:
    text = run(str(LOGS / "afd_socket_p2p_chain*.log"), "-f", "plain").stdout
    (line,) = [line for line in text.splitlines() if "doctor check " in line]
    parts = line.partition("doctor check ")[2].rstrip("`.").split()
    assert parts.pop(0) == "worker1"  # the host of the cause
    assert len(parts) == 2
    assert "," in parts[1]
    result = CliRunner().invoke(application(["check"]), ["check", *parts, "--no-hosts"])
    assert getattr(result.exception, "exit_code", result.exit_code) != 2, result.exception


def test_several_causes_have_a_dash_each_and_one_remedy_has_none() -> None:
    lines = run(str(LOGS / "afd_rootinfo_recv_firewall.p149.log"), "-f", "plain").stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("  possible  "))
    assert [line[12:14] for line in lines[start : start + 3]] == ["- "] * 3
    assert [line[12:14] for line in lines if line.startswith(("  confirm   ", "  fix       "))] == ["`g", "st"]


def test_the_tool_of_the_npu_driver_is_named_by_its_whole_path() -> None:
    """Its folder is not in PATH."""
    output = run(str(LOGS / "hccl_ei0016_tls.log"), "-f", "plain").stdout
    assert "do /usr/local/Ascend/driver/tools/hccn_tool -i $i -tls -g; done" in output and " hccn_tool" not in output
