"""Shared by all tests: tables that tests measured are printed in the summary, also when the tests run in parallel."""

from __future__ import annotations

import pytest

TABLE = "table"
"""Name of the property under which a test records text for the summary: `record_property("table", text)`."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == TABLE and getattr(report, "when", "") == "call":
                    terminalreporter.section(report.nodeid)
                    terminalreporter.write_line(text)
