"""A report whose commands call hccn_tool says where the driver has it: no PATH of a shell holds that folder."""

from __future__ import annotations

import msgspec

from doctor.engine.catalog import load_checks
from doctor.session.replay import HCCN_TOOL, replay
from tests.attack.hostile import record
from tests.node_files import run_of

CHECKS = [check for check in load_checks() if check.name in ("tls-switch-differs", "listen-queue-short")]


def test_the_folder_of_hccn_tool_is_named_where_a_remedy_calls_it() -> None:
    outputs = {fact: dict(by_key) for fact, by_key in record().outputs.items()}
    assert replay(run_of("n1", observed_outputs=outputs), CHECKS).notes == ()
    switches = outputs["TlsSwitches"]
    other = switches["0"].out.replace("tls switch[0]", "tls switch[1]")
    switches["0"] = msgspec.structs.replace(switches["0"], out=other)
    assert replay(run_of("n1", observed_outputs=outputs), CHECKS).notes == (HCCN_TOOL,)
