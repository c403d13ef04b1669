"""Ray Tune: comparisons of arms over seeds, and sweeps over settings, whose trials write run folders.

`trial.py` is the trial and `running.py` runs trials on Tune; `record.py` reads their run folders. `comparison/` and
`sweep/` plan trials and compute their results; `commands/` are the commands of both.
"""
