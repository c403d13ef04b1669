"""Ray Tune: trials that leave run folders behind, and comparisons of arms over seeds.

`trial.py` is the trial; `compare.py` runs a comparison on Tune. What it found is read by `collect.py`, measured by
`measures.py` and `statistics.py`, and told by `table.py`, `pictures.py`, `timeline.py` and `report.py`.
"""
