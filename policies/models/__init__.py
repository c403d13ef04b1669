"""Models by name: those that come with the package or an extra, a folder, or one of a hub."""

from policies.models.choice import MODELS, open_model, public_name
from policies.models.folder import ModelFolder, read_json

__all__ = ["MODELS", "ModelFolder", "open_model", "public_name", "read_json"]
