"""API-Bank (Li and others 2023, arXiv 2304.08244), levels 1 and 2: its folder is named by whoever has it.

Nothing of the benchmark stands here. Its simulators run in a process of their own, which `worker.py` is.
"""
