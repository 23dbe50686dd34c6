"""Where this process runs: launcher, scheduler, hosts, rank.

The only reader of the variables of launchers (`doctor.environment.launchers`) and schedulers
(`doctor.environment.schedulers`); `doctor.environment.job_context.detect` makes one `JobContext` of them.
"""
