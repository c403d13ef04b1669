"""Shared by all tests: the order in which files are begun, and tables that tests measured, printed in the summary."""

from __future__ import annotations

import pytest

TABLE = "table"
"""Name of the property under which a test records text for the summary: `record_property("table", text)`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == TABLE and getattr(report, "when", "") == "call":
                    terminalreporter.section(report.nodeid)
                    terminalreporter.write_line(text)
