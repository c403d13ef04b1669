"""Numbers in the tables of the results pages and of the README are computed again from the runs in docs/results/."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.results import PIECES, RESULTS, before, cell, comparison, measure_of, values_of
from tuning.comparison.measures import GUIDED
from tuning.comparison.report import table_of

README = Path(__file__).parent.parent / "README.md"
SUMMARY = RESULTS.parent / "results.md"
PAGES = [page for page in sorted(RESULTS.glob("*.md")) if page.stem != "PROVENANCE"]
"""PROVENANCE.md has what was tried before: no file keeps these runs."""
WRITTEN = {
    "GRPO": "static-tasks",
    "curator": "coevolved",
    "writer": "genenv",
    "both": "seal-genenv",
    "placebo": "genenv-placebo",
}
CURATORS = {"GRPO": "vanilla", "rules": "rules", "curator": "coevolved", "placebo": "placebo"}
ARMS = {
    "`tiny-rare`": ("tiny-rare", CURATORS),
    "`tiny-rare`, new weights": ("curators-tiny-rare", {**CURATORS, "with probes": "coevolved-probed"}),
    "`tiny`": ("tiny", CURATORS),
    "SmolLM2": ("smollm2", {"GRPO": "vanilla", "curator": "coevolved", "placebo": "placebo"}),
    "SmolLM2, half on BFCL": ("smollm2-bfcl", {"GRPO": "vanilla", "curator": "coevolved", "placebo": "placebo"}),
    "written tasks (GenEnv)": ("written-tasks", WRITTEN),
    "`tiny`, SEAL": ("seal-vanilla", {"GRPO": "vanilla", "rules": "seal"}),
    "`tiny`, all arms": ("all-arms", {"GRPO": "vanilla", "rules": "rules", "curator": "coevolved"}),
}
"""Row of the table in results.md → the experiment, and the arm of each column."""
ROWS = [
    ("curators-tiny-rare", "rules", "vanilla"),
    ("curators-tiny-rare", "coevolved-probed", "vanilla"),
    ("curators-tiny-rare", "coevolved-probed", "llm-frozen-probed"),
    ("smollm2", "coevolved", "vanilla"),
]
"""Row of the README's table → experiment, arm, and the arm that it is compared with."""


def tables(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """The section, the columns and the cells of each row of a page's tables, with ASCII minus signs and spaces."""
    section, columns = "", list[str]()
    for line in re.sub(r"−(?=\d)", "-", text.replace("\N{NO-BREAK SPACE}", " ")).splitlines():
        section = line if line.startswith("## ") else section
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = [each.strip() for each in line[1:-1].split("|")]
        elif not line.startswith("| ---"):
            yield section, columns, [each.strip() for each in line[1:-1].split("|")]


def rows_of(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((RESULTS / f"{name}.csv").read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize(
    ("name", "experiment"),
    [("plain-skill", "tiny-rare"), ("plain-skill-tiny", "tiny"), ("written-tasks", "written-tasks")],
)
def test_a_table_is_that_of_its_pieces(name: str, experiment: str) -> None:
    columns, *rows = (list(map(str, row)) for row in table_of(comparison(experiment)))
    computed = {(row[0], row[1], row[4]): dict(zip(columns, row, strict=True)) for row in rows}
    for row in rows_of(name):
        assert row.items() <= computed[row["arm"], row["seed"], row["measure"]].items()


def test_the_table_of_guided_minus_plain_is_that_of_the_pieces() -> None:
    runs = [(each, arm) for each in PIECES for arm in comparison(each).manifest.arms]
    computed = {(*run, str(seed)): f"{value:.6f}" for run in runs for seed, value in values_of(*run, GUIDED).items()}
    assert computed == {
        (row["experiment"], row["arm"], row["seed"]): row["guided_minus_plain"] for row in rows_of("guided")
    }


def test_idle_guidelines_have_the_stated_gains_by_turn_probes() -> None:
    gains, errors = np.array([[float(row["gain"]), float(row["error"])] for row in rows_of("idle-probes")]).T
    within = int((abs(gains) <= 2 * errors).sum())
    stated = f"In {within} of {len(gains)} windows the gain is within two standard errors of 0."
    stated += f" The mean gain is {gains.mean():.3f}.".replace("-", "−")
    stated += f" The standard errors, {errors.mean():.3f} on average, are larger than the spread of the gains,"
    stated += f" {gains.std(ddof=1):.3f}."
    assert stated in " ".join((RESULTS / "PROVENANCE.md").read_text(encoding="utf-8").split())
    assert f"{within} of {len(gains)} windows" in (RESULTS.parent / "curator.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_cell_is_what_the_runs_give(page: Path) -> None:
    for section, columns, (label, *cells) in tables(page.read_text(encoding="utf-8")):
        named, arm = re.search("`(.+)`", section), re.search("`(.+)`", label)
        experiment = named[1] if named else page.stem
        for column, text in zip(columns[1:], cells, strict=True):
            if column == "what differs":
                assert not re.search(r"\d\.\d", text)
            elif arm or text:
                assert text == (cell(experiment, arm[1], column) if arm else before(experiment, column)), (
                    label,
                    column,
                )


def test_the_summary_is_what_the_runs_give() -> None:
    rows = {
        label: dict(zip(columns[1:], cells, strict=True))
        for _, columns, (label, *cells) in tables(SUMMARY.read_text("utf-8"))
    }
    assert rows.keys() == ARMS.keys()
    for label, (experiment, arms) in ARMS.items():
        row, final = rows[label], measure_of(experiment, "final")
        others = {name: arm for name, arm in arms.items() if name != "GRPO"}
        assert row["seeds"] == str(max(len(values_of(experiment, arm, final)) for arm in arms.values()))
        assert row["rounds"] == str(comparison(experiment).manifest.rounds)
        assert row["before"] == before(experiment, "final")
        for name in ("GRPO", "rules", "curator", "placebo"):
            mean = cell(experiment, arms[name], "final").partition(" ")[0] if name in arms else ""
            assert row[name] == mean if mean else not re.search(r"\d", row[name]), (label, name)
        minus = [f"{name} {cell(experiment, arm, 'final − ' + arms['GRPO'])}" for name, arm in others.items()]
        assert row["difference to GRPO"] == "<br>".join(minus), label
        guided = (
            [f"{name} {cell(experiment, arm, 'guided − plain')}" for name, arm in others.items()]
            if experiment in PIECES
            else []
        )
        assert row["guided − plain"] == ("<br>".join(each for each in guided if "[" in each) or "not recorded"), label


def test_the_readme_has_these_numbers() -> None:
    text = README.read_text(encoding="utf-8").partition("## Does it work?")[2].partition("## Quick start")[0]
    for (_, _, (_, model, difference)), (experiment, arm, minus) in zip(tables(text), ROWS, strict=True):
        assert difference.partition(":")[0] == cell(experiment, arm, f"final − {minus}")
        assert model.endswith(f", {len(values_of(experiment, arm, measure_of(experiment, 'final')))}")
    limits = " ".join(text.replace("−", "-").replace(" points", "").split())
    assert f"lower success in training ({cell('smollm2', 'coevolved', 'guided − plain')})" in limits
    shuffled = cell("curators-tiny-rare", "shuffled-probed", "final − vanilla")
    assert f"gain as much as the curator's sentences ({shuffled})" in limits
    assert f"as much as a curator ({cell('tiny', 'placebo', 'final − vanilla')})" in limits
    won = float(before("smollm2-bfcl", "BFCL success").partition(" ")[0])
    assert f"wins {won:.0f} % of BFCL's 400 test tasks" in limits


def test_numbers_in_sentences_are_numbers_of_tables() -> None:
    texts = [page.read_text(encoding="utf-8") for page in (SUMMARY, *PAGES)]
    known = {
        number for text in texts for _, _, row in tables(text) for number in re.findall(r"\d+\.\d+", " ".join(row))
    }
    for text in texts:
        prose = re.sub(r"^\|.*?$|^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        assert set(re.findall(r"\d+\.\d+", prose)) <= known | {"3.5", "0.05"}  # million weights, and a level
