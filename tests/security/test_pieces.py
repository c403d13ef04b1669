"""Packed comparisons of other people: nothing is written elsewhere, however they are made."""

import os
import resource
import tarfile
import time
from pathlib import Path

import pytest

from envs.errors import UserError
from tests.command_line import RunMain
from tests.security.archives import member, pack
from tests.tuning.comparison.folders import constant, drawn, make_comparison, play
from tuning.comparison.collect import trial_folder
from tuning.comparison.merge import merge
from tuning.record import mark_failed

MANIFEST = "arms: {{{arm}: ''}}\nseeds: [0]\nbaseline: {arm}\nrounds: 2\nfolder: ''\n"


def manifest(arm: str = "vanilla") -> bytes:
    return MANIFEST.format(arm=arm).encode()


def finished(out: Path, arms: tuple[str, ...] = ("vanilla", "rules")) -> Path:
    make_comparison(out, arms=arms, seeds=1)
    for place, arm in enumerate(arms):
        play(out, arm, 0, constant(0.5), solved=drawn({"base": 0.5}, place, tasks=8))
    return out


def test_links_of_an_archive_lead_nowhere(tmp_path: Path) -> None:
    """Python 3.11.4 to 3.11.12 follow such links out of the folder even with `filter="data"`."""
    deep = "/".join(["d" * 247] * 16)
    steps = [member(deep, kind=tarfile.DIRTYPE)]
    links = [member(f"evil/{each}", kind=tarfile.SYMTYPE, link="../" * 16) for each in ("escape", "trials")]
    for number, more in enumerate(
        (
            [*steps, *links, member("evil/escape/owned", b"x")],
            [member("evil/link", kind=tarfile.LNKTYPE, link="../../victim"), member("evil/link", b"x")],
            [member("evil/fifo", kind=tarfile.FIFOTYPE)],
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        archive = pack(folder / "evil.tar.xz", [member("evil/comparison.yaml", manifest()), *more])
        with pytest.raises(UserError, match="holds a link or something else than files and folders"):
            merge([archive], folder / "out")
        assert [path.name for path in folder.iterdir()] == ["evil.tar.xz"]


def test_names_in_an_archive_that_no_comparison_has_are_passed_over(tmp_path: Path) -> None:
    whole = finished(tmp_path / "piece")
    files = [path for path in whole.rglob("*") if path.is_file()]
    inside = [member(f"piece/{path.relative_to(whole)}", path.read_bytes()) for path in files]
    others = [
        member(name, b"x") for name in ("../up", "/tmp/absolute", "piece/trials/../../up", "piece/trials/x/run.py")
    ]
    (tmp_path / "packed").mkdir()
    merge([pack(tmp_path / "packed" / "piece.tar.xz", [*others, *inside])], tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "packed", "piece"]
    assert not list((tmp_path / "out").rglob("*.py"))


@pytest.mark.parametrize("size", [1 << 24, 400_000_000])
def test_an_archive_unpacks_to_a_bounded_size(tmp_path: Path, size: int) -> None:
    archive = tmp_path / "bomb.tar.xz"
    with tarfile.open(archive, "w:xz", preset=1) as file:
        info = tarfile.TarInfo("bomb/comparison.yaml")
        info.size = size + 1
        with open("/dev/zero", "rb") as zeros:
            file.addfile(info, zeros)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    with pytest.raises(UserError, match=r"too large|unpacks to more"):
        merge([archive], tmp_path / "out")
    assert time.process_time() - started < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10


def test_many_members_and_long_headers_are_refused(tmp_path: Path) -> None:
    many = pack(tmp_path / "many.tar.xz", (member(f"many/{number}") for number in range(5000)))
    info, content = member("long/comparison.yaml", manifest())
    info.pax_headers = {"comment": "1" * 100_000}
    long = pack(tmp_path / "long.tar.xz", [(info, content)])
    for archive, what in ((many, "more than 4096"), (long, "a header is too long")):
        with pytest.raises(UserError, match=what):
            merge([archive], tmp_path / "out")


@pytest.mark.parametrize("arm", ["'../../victim/trials/vanilla'", "'a/b'", "'..'", "'a\\nb'", f"'{'a' * 61}'", "''"])
def test_an_arm_is_a_plain_name(tmp_path: Path, arm: str) -> None:
    victim = finished(tmp_path / "victim")
    kept = {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()}
    piece = tmp_path / "piece"
    piece.mkdir()
    (piece / "comparison.yaml").write_bytes(manifest(arm))
    with pytest.raises(UserError, match="cannot be read as a comparison"):
        merge([piece], tmp_path / "out")
    assert {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()} == kept


@pytest.mark.parametrize(
    ("file", "content", "what"),
    [
        ("metrics.jsonl", '{"round": 1, "evaluation/success": 7.0}', "is not from 0 to 1"),
        ("metrics.jsonl", '{"round": 1, "evaluation/success": NaN}', "NaN is no finite number"),
        ("metrics.jsonl", '{"evaluation/success": 0.5}', "round: Field required"),
        ("metrics.jsonl", '{"round": 1, "solver/reward": "high"}', "solver/reward: Input should be a valid number"),
        ("metrics.jsonl", '{"round": ' + "9" * 5000 + "}", "more than 40 digits"),
        ("metrics.jsonl", "[" * 100_000, "nested too deeply"),
        ("metrics.jsonl", '{"round": 1, "\\u001b]52;c;Zm9v\\u0007": 1}', "String should match pattern"),
        ("evaluations.jsonl", '{"round": 1, "suites": {"plain": {"base": {"t": 3}}}}', "less than or equal to 1"),
        ("evaluations.jsonl", '{"round": 1, "suites": [1]}', "suites: Input should be a valid dictionary"),
        ("interfaces.jsonl", '{"round": 1, "interfaces": [{"guidelines": 5}]}', "guidelines"),
        ("exams/exam.json", '{"groups": {"s": {"g": [3, 2]}}}', "there are more right answers than answers"),
        ("config.yaml", "training: {rounds: 1, rounds: 2}", "is given twice"),
        ("config.yaml", "a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]", "aliases are not allowed"),
        ("config.yaml", "solver: {model: 2020-13-45, context: !!timestamp 2020-13-45}", "could not determine"),
    ],
)
def test_rows_and_settings_of_a_piece_are_checked(tmp_path: Path, file: str, content: str, what: str) -> None:
    piece = finished(tmp_path / "piece")
    path = trial_folder(piece, "vanilla", 0) / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(content + "\n", "utf-8")
    with pytest.raises(UserError, match=what) as caught:
        merge([piece], tmp_path / "out")
    assert str(caught.value).isprintable()
    assert not (tmp_path / "out").exists()


def test_what_a_trial_failed_of_cannot_steer_the_terminal(tmp_path: Path, run_main: RunMain) -> None:
    piece = finished(tmp_path / "piece")
    trial = trial_folder(piece, "rules", 0)
    (trial / "metrics.jsonl").unlink()
    mark_failed(trial, "\x1b]52;c;cm0gLXJm\x07\x9b31m it ‮ failed")
    said = run_main("compare", "--report", str(piece))
    assert "failed" in said
    assert not any(each in said for each in ("\x1b]", "\x07", "\x9b", "‮"))


def test_a_linked_folder_or_file_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    piece = finished(tmp_path / "piece")
    os.symlink(secret, trial_folder(piece, "vanilla", 0) / "ended.txt")
    with pytest.raises(UserError, match="is a link"):
        merge([piece], tmp_path / "out")
