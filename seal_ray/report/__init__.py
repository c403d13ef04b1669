"""What a run leaves behind: metrics, interfaces, profiles, a sample of trajectories and a picture. No Ray.

`metrics.py` defines every metric, `files.py` says what lies where, `trackers.py` feeds TensorBoard and wandb, and
`drawing.py` draws.
"""
