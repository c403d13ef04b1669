"""Debian's Chromium for the tests of this folder, which `make browser` installs."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

expect.set_options(timeout=30_000)


@contextmanager
def launched() -> Iterator[Browser]:
    """Chromium, without a window."""
    name = os.environ.get("CHROMIUM", "chromium")
    path = shutil.which(name)
    assert path, f"{name} is missing: run `make browser`, or set CHROMIUM to the path of one"
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path) as browser:
        yield browser


@pytest.fixture(scope="package")  # an event loop runs for it, which tests elsewhere in the process may not find
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser
