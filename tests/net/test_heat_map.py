"""The matrix as a picture: every failure is visible, in any width, and names cannot draw."""

from __future__ import annotations

import math
import re

import msgspec
import pytest

from doctor.net.cause import NetworkCause
from doctor.net.heat_map import heat_map
from doctor.net.matrix import Matrix, PathSpeed
from doctor.net.slow_paths import SlowPath
from tests.net.simulated import PlacedFault, attempts, fleet, metrics_of

ROW = PlacedFault("x", lambda s, t, p: t == 1)
CELL = PlacedFault("x", lambda s, t, p: (s, t, p) == (5, 40, 0))


def test_one_host_that_nobody_reaches_is_a_column() -> None:
    assert heat_map(attempts(4, 2, [ROW])) == [
        "to:   0 1 2 3",
        "0 n0  \\ # . .",
        "1 n1  . \\ . .",
        "2 n2  . # \\ .",
        "3 n3  . # . \\",
        ". all open  # all fail",
    ]


def test_what_is_unknown_or_not_tried_does_not_look_healthy() -> None:
    lines = heat_map(fleet(3, 2, [["-o?", ".-o", "oo-"], ["-oo", ".-!", "oo-"]]))
    assert lines[1:4] == ["0 n0  \\ . ?", "1 n1    \\ ?", "2 n2  . . \\"]
    assert lines[4] == ". all open  ? unknown"


def test_a_pair_of_which_some_connections_pass_is_not_drawn_as_one_that_fails() -> None:
    """Some flows, or small packets, pass; what a failure of the other direction hides is said so."""
    lines = heat_map(fleet(3, 2, [["-fo", "?-o", "o?-"], ["-ho", "?-o", "oo-"]]))
    assert lines[1:4] == ["0 n0  \\ % .", "1 n1  ~ \\ .", "2 n2  . ? \\"]
    assert lines[4:] == [
        ". all open  % only some connections or packets pass",
        "~ unknown while the other direction fails  ? unknown",
    ]
    dropped_too = heat_map(fleet(2, 2, [["-f", "o-"], ["-d", "o-"]]))
    assert dropped_too[1] == "0 n0  \\ #"


def test_a_failure_that_the_job_does_not_need_is_drawn_and_looks_neither_healthy_nor_failed() -> None:
    lines = heat_map(fleet(2, 2, [["-o", "o-"], ["-v", "o-"]]))
    assert lines[1:] == ["0 n0  \\ x", "1 n1  . \\", ". all open  x fails, and the job connects the other way round"]


@pytest.mark.parametrize("hosts", [1, 2, 10, 11, 32, 33, 64, 100, 257])
@pytest.mark.parametrize("width", [20, 80, 120])
def test_lines_fit_and_are_folded_above_32_hosts(hosts: int, width: int) -> None:
    lines = heat_map(attempts(hosts, 1, [ROW]), width)
    assert max(map(len, lines)) <= max(width, 40)
    assert len(lines) <= 32 + 2 + 3
    assert "".join(lines).isascii() and "".join(lines).isprintable()


def test_a_single_failure_of_4032_attempts_is_drawn() -> None:
    lines = heat_map(attempts(64, 1, [CELL]))
    assert sum(line.count("+") + line.count("-") + line.count("#") for line in lines[2:-1]) == 1


def test_names_cannot_draw_or_widen_the_picture() -> None:
    matrix = attempts(3, 1, [])
    hostile = msgspec.structs.replace(matrix, hosts=("\x1b[2J\u202eevil\n" * 50, "宽" * 40, ""))
    for line in heat_map(hostile, 80):
        assert len(line) <= 80
        assert line.isprintable()
        assert "宽" not in line


def test_no_hosts_no_picture() -> None:
    assert heat_map(Matrix((), (), ())) == []


def test_metrics_have_a_few_series_for_each_host() -> None:
    matrix = msgspec.structs.replace(
        attempts(3, 2, [ROW]), silent=(2,), speeds=(PathSpeed(0, 1, latency_median=5e-5, throughput_multi=1e9),)
    )
    slow = SlowPath(
        "host", (0,), "both", math.log(3.5), 0.0, 1e-6, 9, (), 2, figure="latency", value=1.0, peer_value=1.0
    )
    text = metrics_of(matrix, [NetworkCause("host", (1,), (), "inbound")], [slow])
    for line in (
        'doctor_net_attempts{host="n1",result="failed",role="target"} 4.0',
        'doctor_net_attempts{host="n0",result="open",role="source"} 2.0',
        'doctor_net_answered{host="n2"} 0.0',
        'doctor_net_causes{host="n1"} 1.0',
        'doctor_net_latency_seconds{host="n0"} 5e-05',
        'doctor_net_throughput_bytes_per_second{host="n0"} 1e+09',
        'doctor_net_slow_ratio{figure="latency",host="n0"} 3.5',
    ):
        assert line in text


def test_names_cannot_forge_a_metric() -> None:
    matrix = msgspec.structs.replace(attempts(2, 1, []), hosts=('a"} 1\ndoctor_net_causes{host="b', "b"))
    names = {line.split("{")[0] for line in metrics_of(matrix).splitlines() if not line.startswith("#")}
    assert names == {"doctor_net_attempts", "doctor_net_answered", "doctor_net_causes"}
    assert len(re.findall(r"(?m)^doctor_net_causes", metrics_of(matrix))) == 2
