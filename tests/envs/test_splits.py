"""Splits: sizes and balance, no story on two sides, determinism, and split files."""

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from envs.bfcl.splits import category_split, get_split, load_split, overlaps, scenario_split
from envs.bfcl.tasks import get_task, load_tasks
from envs.bfcl.world import simulators_of
from envs.errors import UserError
from envs.sources import PARTS, Split, class_counts
from envs.task import JSON, Category, Task

SEEDS = (0, 7, 2**40)
LINKED = {frozenset(group.split()) for group in ("63 83", "66 70 74", "100 104 133", "107 136", "120 124")}


def frozen(value: JSON) -> str:
    """A JSON value as something hashable, equal exactly where the values are."""
    return json.dumps(value, sort_keys=True, default=dict)


def contents(task: Task) -> tuple[str, str, str]:
    """The identity of a story: the config, the users' words, the calls that solve it, by turn or not."""
    users = [turn.user for turn in task.turns if turn.user is not None]
    calls = [call.to_dict() for turn in task.turns for call in turn.ground_truth]
    return frozen(["config", simulators_of(task).initial_config]), frozen(["users", users]), frozen(["calls", calls])


def ids(tasks: Iterable[Task]) -> list[str]:
    return [task.id for task in tasks]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_scenario_split_is_a_balanced_partition_without_shared_stories(seed: int) -> None:
    split = get_split("scenario", seed=seed)
    assert sorted(ids(split.part("all"))) == sorted(load_tasks())
    assert not split.leaky
    stories = [{content for task in split.part(part) for content in contents(task)} for part in PARTS]
    assert sum(map(len, stories)) == len(set.union(*stories))
    overall = Counter(name for task in load_tasks().values() for name in task.classes)
    # The dev part has 21 scenarios: 0.06 is 1.3.
    for part, size, tolerance in (("train", 316, 0.03), ("test", 400, 0.03), ("dev", 84, 0.06)):
        tasks = split.part(part)
        assert len(tasks) == size
        assert Counter(task.category for task in tasks) == dict.fromkeys(Category, size // 4)
        assert len({task.scenario for task in tasks}) == size // 4
        counted = Counter(name for task in tasks for name in task.classes)
        assert class_counts(tasks) == dict(sorted(counted.items()))
        for name, count in overall.items():
            assert abs(counted[name] / size - count / 800) <= tolerance, (part, name)


def test_the_linked_scenarios_are_those_that_share_content() -> None:
    holders: dict[str, set[str]] = defaultdict(set)
    for task in load_tasks().values():
        for content in contents(task):
            holders[content].add(task.scenario)
    pairs = {pair for scenarios in holders.values() for pair in itertools.combinations(sorted(scenarios), 2)}
    assert pairs, "nothing is linked"
    for pair in pairs:
        assert any(set(pair) <= group for group in LINKED)
    for group in LINKED:  # connected: no group could be divided without dividing a pair
        reached = {min(group)}
        for _ in group:
            reached |= {scenario for pair in pairs if reached & set(pair) for scenario in pair}
        assert reached == group


@pytest.mark.parametrize(("name", "made"), [("scenario", scenario_split), ("category", category_split)])
def test_a_seed_says_everything(name: str, made: Any) -> None:
    drawn = []
    for seed in SEEDS:
        split = get_split(name, seed=seed)
        made.cache_clear()
        again = get_split(name, seed=seed)
        assert [ids(again.part(part)) for part in PARTS] == [ids(split.part(part)) for part in PARTS]
        drawn.append(tuple(ids(split.train)))
    assert len(set(drawn)) == len(SEEDS)


def test_the_default_split_is_pinned() -> None:
    split = get_split()
    assert split == get_split("scenario", seed=0)
    assert split.name == "scenario"
    dev = "18 27 39 45 46 61 71 73 84 88 98 110 134 141 142 146 160 164 184 189 190"
    assert {task.scenario for task in split.dev} == set(dev.split())
    train = sorted({int(task.scenario) for task in split.train})
    assert (train[:8], train[-8:]) == ([2, 3, 6, 7, 8, 10, 17, 21], [183, 187, 188, 191, 193, 194, 196, 199])
    assert sum(train) == 7767


@pytest.mark.parametrize("seed", SEEDS)
def test_a_category_split_is_half_and_half_and_leaks(seed: int) -> None:
    split = get_split("category", seed=seed)
    assert split.leaky
    assert split.dev == ()
    assert sorted(ids(split.train) + ids(split.test)) == sorted(load_tasks())
    for tasks in (split.train, split.test):
        assert Counter(task.category for task in tasks) == dict.fromkeys(Category, 100)
    known = {content for task in split.train for content in contents(task)}
    leaked = [task for task in split.test if known & set(contents(task))]
    assert len(leaked) > 300, "most test tasks have a relative in the train part"


def test_the_order_of_a_part_is_the_published_one() -> None:
    order = {name: index for index, name in enumerate(load_tasks())}
    for split in (get_split("scenario"), get_split("category")):
        for part in PARTS:
            places = [order[task.id] for task in split.part(part)]
            assert places == sorted(places)


@pytest.mark.parametrize("name", ["scenarios", "", ".", "/", "a" * 5_000, "\x00", "\ud800"])
def test_an_unknown_split_is_refused(name: str) -> None:
    said = r"^split: .* is not known; allowed are 'scenario', 'category' or a JSON file\.$"
    with pytest.raises(UserError, match=said):
        get_split(name)


def written(path: Path, value: JSON) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def test_a_split_file_is_read(tmp_path: Path) -> None:
    parts = {"train": ["multi_turn_base_3", "base_1"], "test": ["miss_func_2"], "dev": ["base_9"]}
    split = get_split(str(written(tmp_path / "mine.json", parts)))
    assert isinstance(split, Split)
    assert ids(split.train) == ["multi_turn_base_3", "multi_turn_base_1"]
    assert ids(split.dev) + ids(split.test) == ["multi_turn_base_9", "multi_turn_miss_func_2"]
    assert split.train[0] is get_task("base_3")
    assert (split.name, split.leaky) == ("mine.json", False)
    no_ending = written(tmp_path / "mine", {"train": [], "test": ["base_0"]})
    assert ids(get_split(str(no_ending)).part("all")) == ["multi_turn_base_0"]


@pytest.mark.parametrize(
    ("parts", "leaky"),
    [
        ({"train": ["base_5"], "test": ["miss_func_5"]}, True),
        ({"train": ["base_5"], "dev": ["long_context_5"], "test": ["base_6"]}, True),
        ({"train": ["base_1"], "dev": ["base_5"], "test": ["miss_param_5"]}, True),
        ({"train": ["base_63"], "test": ["base_83"]}, True),
        ({"train": ["base_100"], "test": ["miss_func_133"]}, True),
        ({"train": ["base_5", "miss_func_5"], "test": ["base_6"]}, False),
    ],
)
def test_a_split_file_that_leaks_says_so(tmp_path: Path, parts: JSON, leaky: bool) -> None:
    assert load_split(written(tmp_path / "split.json", parts)).leaky is leaky


REFUSED: Sequence[tuple[JSON, str]] = (
    ({"train": ["base_0"]}, "key 'test' is missing; train and test are needed, dev is optional."),
    ({"test": ["base_0"]}, "key 'train' is missing; train and test are needed, dev is optional."),
    ({"train": ["base_0"], "test": ["base_200"]}, "test: task: 'base_200' is not known; did you mean 'base_20' or"),
    ({"train": ["base_0", "multi_turn_base_0"], "test": []}, "train: 'multi_turn_base_0' is given twice"),
    ({"train": ["base_0"], "test": ["base_1", "base_0"]}, "train and test share 1 task(s), 'multi_turn_base_0' for"),
    ({"train": ["base_0"], "test": [], "dev": ["base_0"]}, "train and dev share 1 task(s), 'multi_turn_base_0' for"),
    ({"train": [], "test": ["base_7"], "dev": ["base_7"]}, "dev and test share 1 task(s), 'multi_turn_base_7' for one"),
    ({"train": "base_0", "test": []}, "train must be a list of task ids, not 'base_0'."),
    ({"train": [0], "test": []}, "train must be a list of task ids, not [0]."),
    ({"train": [], "test": None}, "test must be a list of task ids, not None."),
    (["base_0"], 'must hold an object {"train": [ids], "test": [ids]}, not [\'base_0\'].'),
    *((text, "is not valid JSON (") for text in ("train: base_0", "", "9" * 5_000)),
    *((opening * depth, "is not valid JSON (") for opening in ("[", '{"train":') for depth in (950, 100_000)),
    ("[" * 50 + "]" * 50, "is not valid JSON (it is nested more than 32 levels deep)"),
)


@pytest.mark.parametrize(("value", "reason"), REFUSED)
def test_a_split_file_that_is_wrong_is_refused_in_one_sentence(tmp_path: Path, value: JSON, reason: str) -> None:
    path = written(tmp_path / "split.json", value)
    with pytest.raises(UserError, match=rf"^split: {re.escape(str(path))}") as caught:
        get_split(str(path))
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()
    assert str(caught.value)[-1] in ".?"
    assert len(str(caught.value)) < 400 + len(str(path))


def test_a_split_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes(b'{"train": ["\xff"], "test": []}')
    (tmp_path / "folder.json").mkdir()
    for name in ("latin.json", "folder.json", "absent.json"):
        with pytest.raises(UserError, match=rf"^split: .*{name} cannot be read \(.*\)\.$"):
            get_split(str(tmp_path / name))


@pytest.fixture
def published(tmp_path: Path) -> Split:
    """A split of the published file's form: 100 and 100 ids of each category, and the seed that drew them."""
    split = category_split(42)
    parts = {"train": ids(split.train), "test": ids(split.test)}
    return get_split(str(written(tmp_path / "published.json", {"seed": 42, **parts})))


def test_the_published_form_is_read_as_it_is(published: Split) -> None:
    assert [len(published.part(part)) for part in PARTS] == [400, 0, 400]
    assert (published.ignored, published.leaky, get_split().ignored) == (("seed",), True, ())


def test_how_much_a_split_leaks_is_counted(published: Split) -> None:
    (between,) = overlaps(published)
    assert (between.known, between.of, between.tasks) == ("train", "test", 400)
    split = category_split(42)
    solved = {contents(task)[2] for task in split.train}
    assert between.ground_truth == sum(contents(task)[2] in solved for task in split.test)
    linked = {scenario: min(group) for group in LINKED for scenario in group}
    seen = {linked.get(task.scenario, task.scenario) for task in split.train}
    assert between.scenario == sum(linked.get(task.scenario, task.scenario) in seen for task in split.test)
    assert 300 < between.ground_truth <= between.scenario < 400
    assert all(each.scenario == each.ground_truth == 0 for each in overlaps(get_split()))
    pairs = {(each.known, each.of) for each in overlaps(get_split())}
    assert pairs == {("train", "dev"), ("train", "test"), ("dev", "test")}
