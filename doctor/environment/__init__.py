"""Where this process runs: launcher, scheduler, hosts, rank.

The only reader of the variables of launchers (launchers.toml) and schedulers (schedulers.toml);
`doctor.environment.job_context.detect` makes one `JobContext` of them.
"""
