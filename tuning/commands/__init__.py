"""The commands of this floor, for the entry points `seal_ray.commands` of `pyproject.toml`."""
