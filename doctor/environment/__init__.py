"""Where this process runs: launcher, scheduler, hosts, rank. The only reader of their variables."""
