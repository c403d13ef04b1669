"""Where the tests find API-Bank: `API_BANK_DATA`, or the folder shared/data/api-bank next to the checkout."""

import os
from pathlib import Path

import pytest

from envs.apibank.data import VARIABLE

_NAMED = os.environ.get(VARIABLE)
FOLDER = Path(_NAMED) if _NAMED else Path(__file__).parents[4] / "shared" / "data" / "api-bank"

needs_data = pytest.mark.skipif(
    not (FOLDER / "apis").is_dir(),
    reason=f"API-Bank is not there; {VARIABLE} names the folder api-bank of its repository",
)
