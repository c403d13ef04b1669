"""These tests need a CUDA GPU, and are left out where there is none."""

from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="there is no GPU"))
