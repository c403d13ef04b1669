"""The commands of this floor, as `[project.entry-points."seal_ray.commands"]` names them."""
