"""The first half of the tutorial runs as written, with one round; `make tutorial` runs the whole page."""

from pathlib import Path

import pytest

from tests.tutorial import missing_lines, play


@pytest.mark.long
def test_the_tutorial_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    assert not missing_lines(play(tmp_path, short=True), short=True)
