"""Which hosts, ranks, devices or links are slower than others that are alike. Pure."""
