"""Ray Tune: trials that leave run folders behind, comparisons of arms over seeds, and sweeps over settings.

`trial.py` is the trial and `running.py` runs trials on Tune; `record.py` reads what one left behind. `comparison/` and
`sweep/` plan trials and count their results; `commands/` are the commands of both.
"""
