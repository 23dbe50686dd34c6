"""The groups of the catalogue, in the order in which they are shown."""

AREAS = (
    "reach",
    "kernel",
    "firewall",
    "memory",
    "devices",
    "addresses",
    "links",
    "versions",
    "ranks",
    "smoke",
    "site",
)
