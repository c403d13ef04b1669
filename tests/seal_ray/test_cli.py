"""The command line as a user meets it: in a subprocess, with its texts and exit codes."""

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.text import Text

from envs.bfcl.splits import category_split, overlaps
from envs.sources import get_source
from policies.engine.choice import start_engine
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.solver import Budgets, Solver
from policies.trajectory import Trajectory
from seal_ray.cli.evaluate import environment_of_run, trained_on_source
from seal_ray.cli.play import escaped
from seal_ray.evaluation.suites import choose_tasks
from tests.command_line import Refusal, RunMain
from tests.seal_ray.algorithm.configs import small_model

ROOT = Path(__file__).parent.parent.parent
LONG = "x" * 300
NO_MODELS = ("./nope", "../nope", "a--b/c", "a/b.git", LONG)
GENERATED = "toolworld_dev_miss_func_000003"
EXAMPLE = ROOT / "docs" / "examples" / "interface.json"


def test_the_version_is_that_of_the_project_and_of_what_it_runs_on(run_main: RunMain) -> None:
    found = dict(line.split() for line in run_main("--version").splitlines())
    assert found["seal-ray"] == tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert {name: version(name) for name in ("ray", "torch")}.items() <= found.items()


@pytest.mark.parametrize(
    ("module", "others"),
    [
        ("seal_ray.cli.app", ("torch", "ray", "vllm")),  # which take seconds to import
        # The core of an engine imports the command's script once more, as any process does that multiprocessing spawns.
        ("seal_ray.cli", ("seal_ray.cli.app", "typer", "rich")),
    ],
)
def test_a_module_does_without_others(module: str, others: tuple[str, ...]) -> None:
    program = f"import sys, {module}; assert not [name for name in {others} if name in sys.modules]"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_tasks_counts_every_category_and_part(run_main: RunMain) -> None:
    shown = run_main("tasks", "--counts")
    rows = {cells[0]: cells[1:] for line in shown.splitlines() if (cells := line.replace("│", " ").split())}
    assert rows["base"] == ["79", "21", "100", "200"]
    assert rows["all"] == ["316", "84", "400", "800"]
    assert rows["TravelAPI"] == ["200"]
    assert "leaks" not in shown
    assert "leaks" in run_main("tasks", "--split-scheme", "category", "--counts")


def test_tasks_lists_what_is_asked_for(run_main: RunMain) -> None:
    filters = ("--category", "miss_func", "--class", "TravelAPI", "--split", "dev")
    rows = [json.loads(line) for line in run_main("tasks", *filters, "--json").splitlines()]
    assert {(row["category"], row["part"], "TravelAPI" in row["classes"]) for row in rows} == {
        ("miss_func", "dev", True)
    }
    listed = run_main("tasks", *filters, "--limit", "0")
    assert all(row["id"] in listed for row in rows)
    assert f"{len(rows)} of 800 tasks" in listed


def test_play_replays_ground_truth_turn_by_turn(run_main: RunMain) -> None:
    shown = run_main("play", "multi_turn_miss_func_16", "--oracle")
    assert [line for line in shown.splitlines() if line.startswith("turn ")] == [
        f"turn {turn} of 4" for turn in range(1, 5)
    ]
    assert "reveals cp, echo" in shown
    assert "verdict unscored · label correct_abstention" in shown
    assert shown.count("verdict pass · label pass") == 3
    assert "success, reward 1" in shown


def test_play_lets_a_person_solve_and_fail(run_main: RunMain) -> None:
    lines = ["/tools", "/tool cd", "/tool cdd", "/nonsense", "cd(folder='document')"]
    lines += ["[mkdir(dir_name='temp'), mv(source='final_report.pdf', destination='temp')]", ""]
    lines += ["cat(file_name='nowhere.txt')", "", "", ""]
    shown = run_main("play", "base_0", stdin="\n".join(lines) + "\n")
    assert "did you mean" in shown
    assert "/nonsense is not known" in shown
    for label in ("pass", "recovery_failure", "missing_tool_call"):
        assert f"label {label}" in shown
    assert "failure, reward 0" in shown


def test_play_shows_what_an_interface_changes(run_main: RunMain) -> None:
    assert "Required arguments" in run_main("play", GENERATED, "--oracle", "--interface", str(EXAMPLE))
    shown = run_main("play", "base_0", "--oracle", "--interface", str(EXAMPLE))
    assert "+ cue required on every tool" in shown
    assert "+ guideline: Before you end the turn" in shown
    assert "tool documents change" in shown
    assert "success, reward 1" in shown


def test_play_lets_a_model_solve(run_main: RunMain) -> None:
    """Its completions and verdicts are the same as in an evaluation."""
    task = get_source("toolworld").task("toolworld_train_base_000003")
    shown = run_main("play", task.id, "--model", "tiny")
    model = open_model("tiny")
    form = ChatFormat.load(model.path, model.dialect)

    async def played() -> Trajectory:
        engine = await start_engine("transformers", model, context=4096, dtype="float32", concurrent=1)
        try:
            solver = Solver(engine, form, Budgets(prompt=4096, response=256, context=4096), temperature=0.0)
            return await solver.play(task, seed=0)
        finally:
            await engine.close()

    trajectory = asyncio.run(played())
    judged = [line.split(" · ")[1] for line in shown.splitlines() if "verdict " in line]
    assert judged == [f"label {turn.label}" for turn in trajectory.diagnosis.turns]
    spoken = [form.text(trajectory.token_ids_T[each.begin : each.end]) for each in trajectory.sampled]
    flat = "".join(shown.split())
    assert all("".join(f"solver {text}".split()) in flat for text in spoken)


def test_play_ends_where_a_model_does_not(run_main: RunMain) -> None:
    shown = run_main("play", "base_0", "--model", str(small_model()))
    assert "was cut off, which ends the dialogue" in shown
    assert "failure, reward 0: the dialogue did not end" in shown


def test_what_is_shown_of_a_model_does_nothing_to_the_terminal() -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J[bold]\u202e\x9b31m\nsecond line"
    shown = Text.from_markup(escaped(hostile)).plain
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.endswith("\nsecond line")
    assert "[bold]" in shown


def test_a_checkpoint_is_evaluated_on_the_tasks_of_its_run(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "round_000020"
    checkpoint.mkdir(parents=True)
    written = "environment: {difficulty: t1-2_c1-2_d1-3_s2-4, split_scheme: category, tasks: 3}\n"
    (tmp_path / "config.yaml").write_text(written, "utf-8")
    expected = {"difficulty": "t1-2_c1-2_d1-3_s2-4", "split_scheme": "category"}
    assert environment_of_run(str(tmp_path)) == environment_of_run(str(checkpoint)) == expected
    assert environment_of_run("tiny") == {}


def test_the_split_scheme_of_a_run_is_that_of_the_source_that_it_was_trained_on() -> None:
    toolworld, bfcl = get_source("toolworld"), get_source("bfcl")
    for trained, source, same in (
        ({}, toolworld, False),
        ({"split_scheme": "x"}, toolworld, True),
        ({"split_scheme": "x"}, bfcl, False),
        ({"source": "bfcl"}, bfcl, True),
        ({"source": "toolworld+bfcl"}, bfcl, False),
    ):
        assert trained_on_source(trained, source) is same, trained
    leaky = choose_tasks("bfcl", "test", split_scheme="category")
    trained_on = {task.id for task in bfcl.split("category").train}
    assert not {task.id for task in leaky} & trained_on
    assert {task.id for task in choose_tasks("bfcl", "test")} & trained_on


def test_quitting_a_game_is_an_interruption(run_main: RunMain) -> None:
    for stdin in ("/quit\n", ""):
        assert run_main("play", "base_0", stdin=stdin, code=130).splitlines()[-1] == "interrupted"


NO_FOLDER = (f"--out: {__file__}/x", "cannot be made (Not a directory)")
MISTAKES: dict[str, str | tuple[str, ...]] = {
    "play base_0 --oracle --model tiny": ("--model", "not both"),
    "play base_0 --model nobody": ("model", "'nobody' is no folder"),
    **{f"play base_0 --model {name}": ("model", "is no folder") for name in NO_MODELS},
    "play multi_turn_bsae_1": ("task", "multi_turn_bsae_1", "multi_turn_base_1"),
    "play base_0 --protocol offical": ("protocol", "offical", "official"),
    "play base_0 --dialect qwenn": ("dialect", "qwenn", "qwen"),
    "play base_0 --interface nowhere.json": ("interface", "nowhere.json", "cannot be read"),
    "tasks --category bse": ("category", "bse", "base"),
    "tasks --class TravelApi": ("class", "TravelApi", "TravelAPI"),
    "tasks --split validation": ("split part", "validation", "train"),
    "tasks --split-scheme random": ("split", "random", "scenario"),
    "tasks --counts --json": ("--counts", "--json", "not both"),
    **{
        f"tiny measure --model tiny-writer {option}": "tiny-writer writes tasks and plays none"
        for option in ("--tasks 5", "--interface plain", "--no-greedy")
    },
    "tiny build --writer --tasks 5": "--tasks: the card of tiny-writer has no tables",
    "play toolworld_dev_miss_func_3 --oracle": "toolworld_train_base_000123",
    **{
        f"{command} --out {__file__}/x": NO_FOLDER
        for command in (
            *("evaluate tiny --limit 1", "exam tiny --suite bfcl-v3-single-turn --limit 1", "warm-start"),
            *("tiny build", "extract-adapter tiny --base tiny"),
        )
    },
    **{
        f"{command} {LONG}": "File name too long"
        for command in (
            *("train --resume", "compare --resume", "compare --report", "sweep --resume", "curator", "pool"),
            *("export --out out", "extract-adapter tiny --base tiny --out"),
        )
    },
}


@pytest.mark.parametrize("words", MISTAKES, ids=lambda words: words[:60])
def test_a_mistake_is_one_sentence_and_exit_code_2(words: str, check_refused: Refusal) -> None:
    check_refused(*words.split(), sentence=MISTAKES[words])


COMPARISON = "is a comparison or sweep; give one of its runs: runs/all/trials/seal-seed0."


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("evaluate runs/frist", "model: runs/frist is no run and no model. Did you mean runs/first?"),
        ("show runs/frist", "Did you mean runs/first?"),
        ("curator runs/frist", "Did you mean runs/first?"),
        ("train --resume runs/frist", "Did you mean runs/first?"),
        ("evaluate runs/all", COMPARISON),
        ("serve runs/all", COMPARISON),
        ("export runs/all --out exported", COMPARISON),
        ("train runs/first", "to resume the run in that folder, write --resume runs/first."),
        ("train training.lr = 1e-4", "write training.lr=1e-4 without spaces."),
        ("train lr=1e-4", "did you mean training.lr or"),
        ("train --preset seal.yaml", "preset: there is no file 'seal.yaml'; give the path of one, or the preset seal."),
        ("train --preset nothing", "allowed are coevolved, "),
    ],
)
def test_a_mistaken_run_or_setting_names_the_nearest(
    words: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    for name in ("first/checkpoints", "all/trials/seal-seed0"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert sentence in run_main(*words.split(), code=2)


def test_a_source_without_end_shows_its_first_tasks(run_main: RunMain) -> None:
    said = run_main("tasks", "--env", "toolworld", "--category", "base")
    assert said.count("toolworld_train_base_") == 20
    assert "the first 20 of toolworld" in said


def test_the_published_split_s_form_is_read_and_its_leaks_are_counted(tmp_path: Path, run_main: RunMain) -> None:
    split = category_split(42)
    parts = {part: [task.id for task in split.part(part)] for part in ("train", "test")}
    (between,) = overlaps(split)
    file = tmp_path / "split.json"
    file.write_text(json.dumps({**parts, "seed": 42}), encoding="utf-8")
    told = run_main("tasks", "--counts", "--split-scheme", str(file))
    row = next(line for line in told.splitlines() if "test" in line and "train" in line and "400" in line)
    assert re.findall(r"\d+", row) == ["400", str(between.scenario), str(between.ground_truth)]
    assert "ignored in the file: 'seed'" in told
