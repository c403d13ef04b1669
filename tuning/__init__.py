"""Ray Tune: search spaces, sweeps and comparisons of arms. Empty until the sweeps come."""
