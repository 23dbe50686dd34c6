"""Hosts of a job that are trials on one machine: docker compose, here-documents that swallow a launch, and loopback."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.engine.errors import InputError
from doctor.engine.result import Severity
from doctor.session.training_files import read_training
from tests.lint.launch_report import lint_report

SERVICE = """
  node{0}:
    image: pt
    {1}
    ipc: host
    environment: [NCCL_SOCKET_IFNAME=lo]
    command: ["torchrun", "--nnodes=2", "--node_rank={0}", "--nproc_per_node=2", "--master_addr=127.0.0.1", "sim.py"]
    deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, device_ids: [{2}], capabilities: [gpu]}}]}}}}}}
"""


def errors(network: str, ranks: tuple[int, ...], ids: str, folder: Path, patch: pytest.MonkeyPatch) -> set[str]:
    (folder / "run.yaml").write_text("services:" + "".join(SERVICE.format(rank, network, ids) for rank in ranks))
    patch.chdir(folder)
    outcomes = lint_report(["run.yaml"]).outcomes
    return {one.check for one in outcomes for found in one.findings if one.severity_of(found) is Severity.ERROR}


HOST = "network_mode: host"


@pytest.mark.parametrize(
    ("network", "ranks", "checks"),
    [
        (HOST, (0, 1), set()),
        (HOST, (1,), {"launch-settings-invalid", "master-address-local"}),
        (HOST, (1, 1), {"launch-settings-invalid", "master-address-local"}),
        ("networks: [a]", (0, 1), {"launch-settings-invalid", "master-address-local"}),
    ],
)
def test_loopback_is_right_where_all_hosts_are_one_machine(
    network: str, ranks: tuple[int, ...], checks: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checks <= errors(network, ranks, '"0", "1"', tmp_path, monkeypatch)
    assert bool(errors(network, ranks, '"0", "1"', tmp_path, monkeypatch)) == bool(checks)


@pytest.mark.parametrize(("ids", "is_told"), [('"2", "3"', False), ('"2"', True)])
def test_devices_that_are_listed_are_counted(
    ids: str, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors(HOST, (0, 1), ids, tmp_path, monkeypatch)
    found = {one.check for one in lint_report(["run.yaml"]).outcomes if one.findings}
    assert ("launch-ranks-contradict" in found) == is_told


@pytest.mark.parametrize("end", ["EOF", "  EOF"])
def test_a_here_document_whose_end_is_indented_swallows_the_launch(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"torchrun a.py\ncat > x <<EOF\n{{}}\n{end}\ntorchrun --nproc_per_node 8 t.py\n"
    (tmp_path / "run.sh").write_text(script)
    monkeypatch.chdir(tmp_path)
    if end == "EOF":
        assert len(read_training(["run.sh"], [], {}).jobs) == 2
        return
    with pytest.raises(InputError, match="line 2: a here-document without its end, as EOF in line 4 is indented"):
        read_training(["run.sh"], [], {})
