"""Sources that compose tasks: what a task writer gets, and how specifications are compared."""

import json
import random

import pytest

from envs.errors import UserError
from envs.specifications import Writable, likeness, writable
from envs.toolworld.specification.json_form import schema
from envs.toolworld.specification.value import SCENES, intents_of
from tests.envs.test_specifications import GOOD, made


def test_a_source_says_whether_tasks_can_be_written_for_it() -> None:
    source = writable("toolworld")
    assert isinstance(source, Writable)
    assert source.read(json.dumps(GOOD)) == made()
    assert source.draw(random.Random(3)) == source.draw(random.Random(3))
    assert "files: show, open_in" in source.specification_help
    with pytest.raises(UserError, match="'bfcl' composes no tasks"):
        writable("bfcl")


def test_the_schema_has_the_names_that_are_known() -> None:
    found = schema()["properties"]
    assert list(found) == list(GOOD)
    assert found["turns"]["items"]["items"]["enum"] == [name for scene in SCENES for name in intents_of(scene)]
    assert found["scenes"]["items"]["enum"] == list(SCENES)


def test_likeness_is_by_category_scenes_intents_and_turns() -> None:
    assert likeness(made(), made(state=8, distractors=0)) == 1.0
    near, far = (
        made(turns=[["files.show"], ["files.write"]], withheld={"turn": 0}),
        made(category="base", withheld=None),
    )
    assert 0.5 < likeness(made(), near) < 1.0
    assert likeness(made(), far) == 0.0
    assert likeness(near, made()) == likeness(made(), near)
