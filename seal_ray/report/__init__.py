"""What a run leaves behind: metrics, interfaces, profiles, a sample of trajectories and a picture. No Ray.

`metrics.py` defines every metric, `run_folder.py` says what lies where, `writers.py` feeds TensorBoard and wandb, and
`curves.py` draws, with `drawing.py`. `json_lines.py` and `files.py` are how files are written.
"""
