"""What product-mixed finds."""

from __future__ import annotations

from doctor.facts.npu import Family, NpuProduct
from tests.checks.devices import fleet, of

look = of("product_mixed")


def product(family: Family) -> NpuProduct:
    return NpuProduct(family=family, evidence="PCI id")


def test_the_odd_host_is_named() -> None:
    (finding,) = look(fleet(product("A2"), product("A1"), product("A2")))
    assert finding.hosts == ("b",)
    assert str(finding) == "NPUs of family A1; 2 of 3 hosts have A2"
