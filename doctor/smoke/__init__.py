"""The smoke run: a tiny training job, in parallel, on the ranks of the real one, judged from outside its collectives.

`plan` decides who trains what (pure). `launch` starts it and watches it. `agent` runs on each host and `worker` in
each rank: both are sent there as text and import nothing of ours. `detect` names the rank that hangs (pure).
"""
