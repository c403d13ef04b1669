"""The curators without a model: what they propose from which window, and that it can be stored."""

import asyncio
import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envs.diagnosis import Label
from envs.errors import UserError
from envs.interface import CueKind, Interface, RecoveryLevel, SchemaCue
from envs.interface.json_form import dump_interface
from envs.interface.value import MAX_GUIDELINES
from envs.profile import FailureProfile
from policies.curator import Curator
from policies.curator.base import CURATORS
from policies.curator.fixed import IDLE, STATIC_CUES
from policies.curator.rules import GUIDELINE_FOR, RULES_BASE, pressures
from policies.proposer import Proposal, is_model
from policies.tiny.behaviours import CURATOR_WORDINGS, RATES, SOLVER_WORDINGS, Behaviour
from tests.policies.scripts import diagnosis_of, seen

ROOT = Path(__file__).parents[2]
WITHOUT_MODEL = ("none", "fixed", "placebo", "rules", "rules-static")
OTHER = Interface((SchemaCue(CueKind.FORMAT),), RecoveryLevel.SCHEMA, ("Be brief and polite.",), fade=0.25)
ABSTAIN = GUIDELINE_FOR[Label.SPURIOUS_TOOL_CALL]
RECOVER = GUIDELINE_FOR[Label.RECOVERY_FAILURE]
EIGHT_TURNS = seen(([Label.SPURIOUS_TOOL_CALL] * 8, 0.0))
EVERY_PART = GUIDELINE_FOR[Label.STATE_MISMATCH]


def proposals(
    curator: Curator, profile: FailureProfile, *, incumbent: Interface | None = None, n: int = 1, seed: int = 0
) -> tuple[Proposal[Interface], ...]:
    shown = incumbent or Interface.plain()
    return asyncio.run(curator.propose(profile, incumbent=shown, n=n, round_number=5, seed=seed))


def guidelines(curator: Curator, profile: FailureProfile, incumbent: Interface | None = None) -> tuple[str, ...]:
    (proposal,) = proposals(curator, profile, incumbent=incumbent)
    assert proposal.value is not None
    return proposal.value.guidelines


def make(kind: str, **known: Any) -> Curator:
    made: Curator = CURATORS.make(kind, known)
    return made


def test_each_kind_shows_its_own_interface() -> None:
    many = seen(([Label.SPURIOUS_TOOL_CALL] * 80, 0.0))
    assert [name for name in CURATORS.names() if not is_model(CURATORS, name)] == list(WITHOUT_MODEL)
    shown = {"none": Interface.plain(), "fixed": STATIC_CUES, "placebo": IDLE, "rules-static": RULES_BASE}
    for kind, interface in shown.items():
        assert proposals(make(kind), many, incumbent=OTHER, n=3) == (Proposal(interface),)
        assert proposals(make(kind), many, n=0) == ()
    assert proposals(make("rules"), FailureProfile(), n=3) == (Proposal(RULES_BASE),)
    assert {cue.kind for cue in STATIC_CUES.schema_cues} == {CueKind.REQUIRED, CueKind.ENUM}
    assert replace(RULES_BASE, recovery=RecoveryLevel.NONE) == STATIC_CUES
    assert RULES_BASE.recovery is RecoveryLevel.CLASS
    with pytest.raises(UserError, match=r"curator\.kind: 'rule' is not known; did you mean 'rules'"):
        make("rule")


def test_a_given_interface_is_shown_by_fixed_and_extended_by_rules(tmp_path: Path) -> None:
    many = seen(([Label.SPURIOUS_TOOL_CALL] * 8, 0.0))
    file = tmp_path / "interface.json"
    file.write_text(dump_interface(OTHER), encoding="utf-8")
    for given in (OTHER, str(file)):
        assert proposals(make("none", interface=given), many) == (Proposal(Interface.plain()),)
        assert proposals(make("fixed", interface=given), many) == (Proposal(OTHER),)
        assert guidelines(make("rules", interface=given), many) == (*OTHER.guidelines, ABSTAIN)
    base = Interface(guidelines=(ABSTAIN,))
    assert guidelines(make("rules", interface=base), many) == (ABSTAIN,), "one of the base is not repeated"


def test_the_placebo_is_as_long_as_guidance() -> None:
    guidance = list(itertools.chain(*SOLVER_WORDINGS.behaviours.values()))
    lengths = [sum(map(len, texts)) / len(texts) for texts in (IDLE.guidelines, guidance)]
    assert abs(lengths[0] / lengths[1] - 1) < 0.15
    assert Interface(guidelines=IDLE.guidelines) == IDLE
    assert len(IDLE.guidelines) == 3, "as many as the rules show"


OTHERS, FEW, EIGHT = Label.INHERITED_STATE, [Label.SPURIOUS_TOOL_CALL] * 7, [Label.SPURIOUS_TOOL_CALL] * 8
FINE = [Label.PASS, Label.CORRECT_ABSTENTION, Label.NOT_REACHED] * 100
HALF = [([Label.RECOVERY_FAILURE] * 4, reward) for reward in (1.0, 1.0, 1.0, 0.0, 0.0)]
"""Their mean reward is the bound, 0.6."""
BELOW = [*HALF, ([Label.RECOVERY_FAILURE], 0.5)]
SHOWN: dict[str, tuple[list[tuple[list[Label], float]], tuple[str, ...]]] = {
    "seven turns are too few": ([(FEW, 0.0)], ()),
    "eight are enough": ([(EIGHT, 0.0)], (ABSTAIN,)),
    "a tenth of the failed turns": ([([OTHERS] * 72, 0.0), (EIGHT, 0.0)], (ABSTAIN,)),
    "less than a tenth": ([([OTHERS] * 73, 0.0), (EIGHT, 0.0)], ()),
    "a tenth, and turns that did not fail": ([([OTHERS] * 72, 0.0), (FINE, 0.0), (EIGHT, 0.0)], (ABSTAIN,)),
    "a mean reward of six tenths": (HALF, ()),
    "one below": (BELOW, (RECOVER,)),
    "one below, and fifty others": ([*BELOW, *[([Label.PASS], 1.0)] * 50], (RECOVER,)),
    "the three with the most pressure, a shared one once": (
        [
            ([label] * times, 0.0)
            for label, times in (
                *((Label.STATE_MISMATCH, 30), (Label.MISSING_TOOL_CALL, 25), (Label.RECOVERY_FAILURE, 20)),
                *((Label.SPURIOUS_TOOL_CALL, 15), (Label.ARGUMENT_MISMATCH, 12)),
            )
        ],
        (EVERY_PART, RECOVER, ABSTAIN),
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_rules_show_guidelines_against_what_fails_often(name: str) -> None:
    rollouts, expected = SHOWN[name]
    assert guidelines(make("rules"), seen(*rollouts)) == expected


def test_labels_are_ranked_by_pressure() -> None:
    profile = seen(
        ([Label.ARGUMENT_MISMATCH] * 10, 0.0),  # pressure 10/50 · 1
        ([Label.RECOVERY_FAILURE] * 16, 0.5),  # 16/50 · 0.5
        ([Label.SPURIOUS_TOOL_CALL] * 24, 0.25),  # 24/50 · 0.75
    )
    ranked = pressures(profile)
    assert list(ranked) == [Label.SPURIOUS_TOOL_CALL, Label.ARGUMENT_MISMATCH, Label.RECOVERY_FAILURE]
    assert list(ranked.values()) == pytest.approx([0.36, 0.2, 0.16])
    assert guidelines(make("rules"), profile) == tuple(GUIDELINE_FOR[label] for label in ranked)
    assert set(GUIDELINE_FOR) == {label for label in Label if label.is_failure} - {Label.INHERITED_STATE}


def test_guidelines_are_worked_out_anew_from_the_window() -> None:
    curator, profile = make("rules"), seen(([Label.SPURIOUS_TOOL_CALL] * 9, 0.0))
    (first,) = proposals(curator, profile)
    profile.start_window()
    # Nothing was seen since: what is shown stays, or the base where nothing was shown yet.
    for incumbent, shown in ((first.value, first.value), (OTHER, OTHER), (Interface(fade=0.5), RULES_BASE)):
        assert proposals(curator, profile, incumbent=incumbent) == (Proposal(shown),)
    profile.add(diagnosis_of(success=True), 1.0)
    assert proposals(curator, profile, incumbent=first.value) == (Proposal(RULES_BASE),)
    profile.add(diagnosis_of(*[Label.RECOVERY_FAILURE] * 8), 0.0)
    assert guidelines(curator, profile, first.value) == (RECOVER,)


def test_proposals_depend_on_the_profile_alone() -> None:
    # Equal pressures keep the order of the table, in whatever order the labels were seen.
    forth = seen(([Label.RECOVERY_FAILURE] * 8, 0.0), ([Label.INVALID_TOOL_CALL] * 8, 0.0))
    back = seen(([Label.INVALID_TOOL_CALL] * 8, 0.0), ([Label.RECOVERY_FAILURE] * 8, 0.0))
    assert proposals(make("rules"), forth, seed=1) == proposals(make("rules"), back, seed=2)
    assert guidelines(make("rules"), back) == (GUIDELINE_FOR[Label.INVALID_TOOL_CALL], RECOVER)
    stored = FailureProfile.from_dict(json.loads(json.dumps(forth.to_dict())))
    assert proposals(make("rules"), stored) == proposals(make("rules"), forth)


@pytest.mark.parametrize("kind", WITHOUT_MODEL)
def test_a_state_passes_through_json(kind: str) -> None:
    curator, other = make(kind), make(kind)
    before = proposals(curator, EIGHT_TURNS)
    state = json.loads(json.dumps(curator.get_state()))
    other.set_state(state)
    assert other.get_state() == state
    assert proposals(other, EIGHT_TURNS) == before
    for wrong in ({"kind": "another"}, {}):
        with pytest.raises(UserError, match=f"curator of kind '{kind}'"):
            other.set_state(wrong)


def test_no_solver_of_a_small_model_has_read_a_sentence_of_its_curator_the_rules_or_the_placebo() -> None:
    assert set(RATES) == set(Behaviour), "a behaviour without a guideline here"
    seen = " ".join(SOLVER_WORDINGS.all)
    for text in (*GUIDELINE_FOR.values(), *IDLE.guidelines, *CURATOR_WORDINGS.all):
        assert text not in seen


def test_a_base_without_room_for_guidelines_is_refused() -> None:
    full = tuple(f"Guideline {number}." for number in range(MAX_GUIDELINES - 2))
    make("rules", interface=Interface(guidelines=full[:-1]))
    with pytest.raises(UserError, match=r"curator\.interface: the rules add 3 guidelines to its 6"):
        make("rules", interface=Interface(guidelines=full))


def test_curators_load_neither_torch_nor_the_tiny_base() -> None:
    program = (
        "import sys, policies.curator\n"
        "print('torch' in sys.modules, any(name.startswith('policies.tiny') for name in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]
