"""Names behind settings: built in, installed, or an import path; and the settings of what they name."""

from importlib.metadata import EntryPoint, EntryPoints

import pytest
from pydantic import BaseModel, ConfigDict, Field

from envs import registry
from envs.errors import UserError
from envs.registry import Registry

HERE = "tests.envs.test_registry"
SHAPES: Registry[type] = Registry("drawing.shape", "seal_ray.shapes", {"dot": f"{HERE}:Dot", "disc": f"{HERE}:Disc"})


class Dot:
    """A thing without settings."""


class Disc:
    """A thing with settings."""

    class Settings(BaseModel):
        """The settings of a disc."""

        model_config = ConfigDict(extra="forbid")
        radius: float = Field(default=1.0, gt=0)

    def __init__(self, settings: Settings) -> None:
        self.radius = settings.radius


def test_a_name_is_built_in_or_an_import_path_and_settings_come_from_the_section() -> None:
    assert SHAPES.names() == ["dot", "disc"]
    assert SHAPES.find("dot") is Dot
    assert SHAPES.find(f"{HERE}:Disc") is Disc
    assert SHAPES.make("disc").radius == 1.0
    assert SHAPES.make("disc", {"radius": 2.0, "colour": "red"}).radius == 2.0
    assert isinstance(SHAPES.make("dot", {"radius": 2.0}), Dot)
    with pytest.raises(UserError, match=r"drawing.shape: disc: radius: -1.0"):
        SHAPES.make("disc", {"radius": -1.0})


def test_an_installed_package_adds_names_and_replaces_none(monkeypatch: pytest.MonkeyPatch) -> None:
    group = "seal_ray.installed_shapes"  # which nothing else asks for: a group is read once
    points = [EntryPoint("ring", f"{HERE}:Disc", group), EntryPoint("dot", "nowhere:X", group)]
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints(points).select(group=group))
    shapes: Registry[type] = Registry("drawing.shape", group, SHAPES.built_in)
    assert shapes.names() == ["dot", "disc", "ring"]
    assert shapes.find("ring") is Disc
    assert shapes.find("dot") is Dot


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dott", "drawing.shape: 'dott'.*did you mean 'dot'"),
        ("no.such.module:Thing", "drawing.shape: 'no.such.module:Thing' cannot be imported.*looked for in /"),
        *((f"{HERE}:Nothing", "cannot be imported"), ("..:x", "is no name of Python code")),
    ],
)
def test_an_unknown_name_is_one_sentence(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        SHAPES.find(name)
    assert "\n" not in str(caught.value)
