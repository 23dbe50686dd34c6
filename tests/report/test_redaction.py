"""Pseudonyms: nothing that tells where a report comes from is left, and all else is."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.engine.exit_code import exit_code
from doctor.engine.result import Finding, Reason, Report
from doctor.engine.smoke_summary import HostTemperature, SoakFigures, SoakMinute
from doctor.engine.watch_summary import RankPace
from doctor.report.diff.compare import compare
from doctor.report.formats.json import encode
from doctor.report.formats.registry import FORMATS, RenderContext, render
from doctor.report.redact.pseudonyms import Redactor
from doctor.report.redact.report import redacted_report
from tests.examples import examples
from tests.report import reports as example_reports
from tests.report.strategies import reports

KEY = b"k" * 32
HOSTS = ["node001", "node002", "gpu-1", "gpu-12", "port", "a.example.com", "10.0.0.7", "fe80::1", "x y", "localhost"]
HIDDEN = r"(?:host|ip|ipv6|mac|user)-[bcdfghjklmnpqrstvwxz]{10}"
R = Redactor(KEY, HOSTS)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("node001 and node0011, anode001", "HH and node0011, anode001"),
        ("node001-ib0:/data node001_eth0", "HH-ib0:/data HH_eth0"),
        ("on node001. Then", "on HH. Then"),
        ("node001.cluster.internal", "HH"),
        ("gpu-1 gpu-12 gpu-123", "HH HH gpu-123"),
        ("gpu-1:8080,gpu-12:8080", "HH:8080,HH:8080"),
        ("node[001-002] and foo[1-2]", "HH,HH and foo[1-2]"),
        ("b.example.com x y", "HH HH"),
        ("www.example.org", "HH"),
        ("10.0.0.7/24 10.0.0.8:29500", "HH/24 HH:29500"),
        ("10.0.0.8-10.0.0.9 node_10.0.0.8", "HH-HH node_HH"),
        ("2001:db8::5: no answer; ::ffff:10.1.2.3", "HH: no answer; HH"),
        ("2001:db8:1:2:3:4:5:6: no answer", "HH: no answer"),
        ("fe80::1%eth0 [2001:db8::5]:22", "HH%eth0 [HH]:22"),
        ("aa:bb:cc:dd:ee:ff AA-BB-CC-DD-EE-FF", "HH HH"),
        ("/home/alice/train.py ~bob/x", "/home/HH/train.py ~HH/x"),
        ("alice@node001 root@node002", "HH@HH root@HH"),
        ("https://api.telegram.org/bot123456789:ex4g2Vs7shSAUqX/send", "https://HH/bot[hidden]"),
        ("https://hooks.slack.com/services/T0/B0/abcdefXYZ1 on gpu-1", "https://HH/services/[hidden] on HH"),
    ],
)
def test_what_is_replaced(text: str, pattern: str) -> None:
    assert re.fullmatch(re.escape(pattern).replace("HH", HIDDEN), R.text(text)), R.text(text)


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1 ::1 0.0.0.0 :: 255.255.255.0 255.255.255.255 netmask 255.255.0.0",
        "driver 23.0.1, firmware 7.1.0.5.220, at 10:15:02, took 4.1 s",
        "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff 0000:81:00.0 c10::Error std::vector",
        "net.ipv4.ip_forward train.py torch.distributed /etc/resolv.conf libhccl.so.1",
        "localhost @all {ip} a[1-3] [bold]",
        "rank 3 waits for ranks 0-2,5",
    ],
)
def test_what_stays(text: str) -> None:
    assert R.text(text) == text


def test_one_thing_has_one_pseudonym_however_it_is_written() -> None:
    assert R.text("2001:DB8:0::5") == R.text("2001:db8::5")
    assert R.text("AA-BB-CC-DD-EE-FF") == R.text("aa:bb:cc:dd:ee:ff")
    assert R.text("node001") == R.host("node001") == Redactor(KEY, ["node001"]).text("node001")


def test_another_key_gives_other_pseudonyms() -> None:
    assert Redactor(b"x" * 32, HOSTS).text("node001 10.0.0.8") != R.text("node001 10.0.0.8")


def test_a_sentence_of_a_check_is_not_broken_by_a_host_that_is_called_like_a_word() -> None:
    assert R.template("the port {port} of node001 is taken") == f"the port {{port}} of {R.host('node001')} is taken"
    assert R.text("port") == R.host("port")


def telling() -> Report:
    """A report in which every part could tell."""
    hosts = ("node001", "node002")
    finding = Finding(
        "{ip} belongs to {owners}",
        hosts=hosts,
        ip="10.1.2.3",
        owners=[("node001", 3), ("node002", 4)],
        by={"node001": "aa:bb:cc:dd:ee:01"},
        observed="node[001-002]",
    )
    blind = {"node002": Reason("node002: no answer from 10.1.2.4")}
    heat = SoakMinute(0.0, 60.0, 10, 0, temperatures=(HostTemperature("node001", 61.0),))
    figures = msgspec.structs.replace(
        example_reports.smoke_hang().smoke,  # type: ignore[type-var]
        notes=("10.1.2.3",),
        soak=SoakFigures(60.0, {"all_reduce": 10}, minutes=(heat,)),
    )
    return example_reports.report(
        example_reports.outcome("device-ip-conflict", finding, evaluated_hosts=hosts, unknown=blind),
        example_reports.outcome(
            "pid-limit-low", evaluated_hosts=("node001",), crashed={"node002": 'File "/home/alice/x.py"'}
        ),
        example_reports.outcome(
            "link-down", evaluated_hosts=(), complete=False, skipped={"node001": "alice@node001 said no"}
        ),
        hosts=hosts,
        source="2 hosts from /home/alice/hosts",
        notes=("node001 is slow",),
        smoke=figures,
        pace=(RankPace(0, "node001", compute=0.2),),
    )


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_tells(name: str) -> None:
    report = telling()
    text = render(
        name, redacted_report(report, KEY), RenderContext(exit_code(report), example_reports.PAGES, verbose=True)
    )
    assert not re.search(r"node0|001|10\.1\.2|aa:bb|alice", text)
    assert re.search(HIDDEN, text)


def test_all_that_is_no_name_stays() -> None:
    report = telling()
    before, after = (json.loads(encode(entry, 10)) for entry in (report, redacted_report(report, KEY)))
    assert before["counts"] == after["counts"]
    for first, other in zip(before["outcomes"], after["outcomes"], strict=True):
        assert first["status"] == other["status"]
        assert len(first["evaluated_hosts"]) == len(other["evaluated_hosts"])
        assert [finding["template"] for finding in first["findings"]] == [
            finding["template"] for finding in other["findings"]
        ]


def test_two_runs_can_still_be_compared() -> None:
    old, new = example_reports.unknown(), example_reports.dead_host()
    report_difference, veiled = compare(old, new), compare(redacted_report(old, KEY), redacted_report(new, KEY))
    assert [(change.kind, change.check, len(change.hosts)) for change in report_difference.changes] == [
        (change.kind, change.check, len(change.hosts)) for change in veiled.changes
    ]


@settings(max_examples=examples(60), deadline=None)
@given(reports())
def test_any_report_keeps_its_verdict_and_loses_its_names(report: Report) -> None:
    after = redacted_report(report, KEY)
    assert exit_code(after) == exit_code(report)
    assert len(after.hosts) == len(set(after.hosts)) == len(report.hosts)
    text = encode(after, 0).decode()
    for host in report.hosts:
        if re.fullmatch(r"node\d\d", host):
            assert not re.search(rf"(?<![\w.-]){host}(?![\w-])", text)


@given(st.text(max_size=60))
def test_any_text_goes_through(text: str) -> None:
    R.text(text)
    R.template(text)
