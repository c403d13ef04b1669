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
from envs.interface.json_form import dump_interface, interface_from_json
from envs.interface.value import MAX_GUIDELINES
from envs.profile import FailureProfile
from policies.curator import Curator
from policies.curator.base import CURATORS
from policies.curator.fixed import IDLE, STATIC_CUES, FixedCurator, NoCurator
from policies.curator.rules import GUIDELINE_FOR, RULES_BASE, RulesCurator, pressures, select_guidelines
from policies.proposer import Proposal, is_model
from policies.tiny.behaviours import CURATOR_WORDINGS, RATES, SOLVER_WORDINGS, Behaviour
from tests.policies.scripts import diagnosis_of, seen

ROOT = Path(__file__).parents[2]
WITHOUT_MODEL = ("none", "fixed", "placebo", "rules", "rules-static")
OTHER = Interface((SchemaCue(CueKind.FORMAT),), RecoveryLevel.SCHEMA, ("Be brief and polite.",), fade=0.25)
ABSTAIN = GUIDELINE_FOR[Label.SPURIOUS_TOOL_CALL]
RECOVER = GUIDELINE_FOR[Label.RECOVERY_FAILURE]
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


def test_each_kind_is_made_with_its_own_interface() -> None:
    nothing = FailureProfile()
    assert [make(kind).kind for kind in WITHOUT_MODEL] == list(WITHOUT_MODEL)
    assert proposals(make("none"), nothing, incumbent=OTHER) == (Proposal(Interface.plain()),)
    assert proposals(make("fixed"), nothing, incumbent=OTHER) == (Proposal(STATIC_CUES),)
    assert proposals(make("rules"), nothing) == (Proposal(RULES_BASE),)
    assert {cue.kind for cue in STATIC_CUES.schema_cues} == {CueKind.REQUIRED, CueKind.ENUM}
    assert replace(RULES_BASE, recovery=RecoveryLevel.NONE) == STATIC_CUES
    assert RULES_BASE.recovery is RecoveryLevel.CLASS


def test_a_given_interface_is_shown_by_fixed_and_extended_by_rules(tmp_path: Path) -> None:
    many = seen(([Label.SPURIOUS_TOOL_CALL] * 8, 0.0))
    file = tmp_path / "interface.json"
    file.write_text(dump_interface(OTHER), encoding="utf-8")
    for given in (OTHER, str(file)):
        assert proposals(make("fixed", interface=given), many) == (Proposal(OTHER),)
        assert proposals(make("rules", interface=given), many) == (
            Proposal(replace(OTHER, guidelines=(*OTHER.guidelines, ABSTAIN))),
        )
        assert proposals(make("none", interface=given), many) == (Proposal(Interface.plain()),)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UserError, match=r"curator\.kind: 'rule' is not known; did you mean 'rules'"):
        make("rule")


def test_a_kind_is_a_model_or_not() -> None:
    assert [name for name in CURATORS.names() if not is_model(CURATORS, name)] == list(WITHOUT_MODEL)
    assert is_model(CURATORS, "llm")


def test_static_rules_show_their_base_interface_whatever_fails() -> None:
    many = seen(([Label.SPURIOUS_TOOL_CALL] * 80, 0.0))
    assert proposals(make("rules-static"), many, incumbent=OTHER) == (Proposal(RULES_BASE),)


def test_the_placebo_is_as_long_as_guidance_and_says_nothing() -> None:
    assert proposals(make("placebo"), FailureProfile(), incumbent=OTHER) == (Proposal(IDLE),)
    guidance = list(itertools.chain(*SOLVER_WORDINGS.behaviours.values()))
    lengths = [sum(map(len, texts)) / len(texts) for texts in (IDLE.guidelines, guidance)]
    assert abs(lengths[0] / lengths[1] - 1) < 0.15
    assert len(IDLE.guidelines) == 3, "as many as the rules show"
    assert Interface(guidelines=IDLE.guidelines) == IDLE


@pytest.mark.parametrize("kind", WITHOUT_MODEL)
def test_as_many_as_asked_for_at_most(kind: str) -> None:
    profile = seen(([Label.SPURIOUS_TOOL_CALL] * 8, 0.0))
    assert proposals(make(kind), profile, n=0) == ()
    assert proposals(make(kind), FailureProfile(), n=0) == ()
    assert len(proposals(make(kind), profile, n=3)) == 1


def test_a_guideline_needs_eight_turns() -> None:
    assert guidelines(make("rules"), seen(([Label.SPURIOUS_TOOL_CALL] * 7, 0.0))) == ()
    assert guidelines(make("rules"), seen(([Label.SPURIOUS_TOOL_CALL] * 8, 0.0))) == (ABSTAIN,)


def test_a_guideline_needs_a_tenth_of_the_failed_turns() -> None:
    others = ([Label.INHERITED_STATE] * 72, 0.0)
    assert guidelines(make("rules"), seen(others, ([Label.SPURIOUS_TOOL_CALL] * 8, 0.0))) == (ABSTAIN,)
    one_more = ([Label.INHERITED_STATE], 0.0)
    assert guidelines(make("rules"), seen(others, one_more, ([Label.SPURIOUS_TOOL_CALL] * 8, 0.0))) == ()
    # Turns that did not fail are no part of the share.
    fine = ([Label.PASS, Label.CORRECT_ABSTENTION, Label.NOT_REACHED] * 100, 0.0)
    assert guidelines(make("rules"), seen(others, fine, ([Label.SPURIOUS_TOOL_CALL] * 8, 0.0))) == (ABSTAIN,)


def test_a_guideline_needs_a_mean_reward_below_six_tenths() -> None:
    turns = [Label.RECOVERY_FAILURE] * 4
    at_the_edge = [*[(turns, 1.0)] * 3, *[(turns, 0.0)] * 2]
    assert guidelines(make("rules"), seen(*at_the_edge)) == ()
    # The mean is that of the rollouts with the label, not of all.
    for others in ([], [([Label.PASS], 1.0)] * 50):
        assert guidelines(make("rules"), seen(*at_the_edge, (turns, 0.5), *others)) == (RECOVER,)


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


def test_the_three_with_the_most_pressure_are_kept_and_a_shared_one_counts_once() -> None:
    profile = seen(
        ([Label.STATE_MISMATCH] * 30, 0.0),
        ([Label.MISSING_TOOL_CALL] * 25, 0.0),
        ([Label.RECOVERY_FAILURE] * 20, 0.0),
        ([Label.SPURIOUS_TOOL_CALL] * 15, 0.0),
        ([Label.ARGUMENT_MISMATCH] * 12, 0.0),
    )
    assert guidelines(make("rules"), profile) == (EVERY_PART, RECOVER, ABSTAIN)
    assert select_guidelines(profile) == (EVERY_PART, RECOVER, ABSTAIN)
    assert len(pressures(profile)) == 5


def test_guidelines_are_worked_out_anew_from_the_window() -> None:
    curator = make("rules")
    profile = seen(([Label.SPURIOUS_TOOL_CALL] * 9, 0.0))
    (first,) = proposals(curator, profile)
    profile.start_window()
    # Nothing was seen since: what is shown stays, or the base where nothing was shown yet.
    assert proposals(curator, profile, incumbent=first.value) == (first,)
    assert proposals(curator, profile, incumbent=OTHER) == (Proposal(OTHER),)
    assert proposals(curator, profile, incumbent=Interface(fade=0.5)) == (Proposal(RULES_BASE),)
    profile.add(diagnosis_of(success=True), 1.0)
    assert proposals(curator, profile, incumbent=first.value) == (Proposal(RULES_BASE),)
    profile.add(diagnosis_of(*[Label.RECOVERY_FAILURE] * 8), 0.0)
    assert guidelines(curator, profile, first.value) == (RECOVER,)


def test_turns_before_the_window_do_not_count() -> None:
    profile = seen(([Label.SPURIOUS_TOOL_CALL] * 50, 0.0))
    profile.start_window()
    for _ in range(7):
        profile.add(diagnosis_of(Label.SPURIOUS_TOOL_CALL), 0.0)
    assert guidelines(make("rules"), profile) == ()
    profile.add(diagnosis_of(Label.SPURIOUS_TOOL_CALL), 0.0)
    assert guidelines(make("rules"), profile) == (ABSTAIN,)


def test_proposals_depend_on_the_profile_alone() -> None:
    # Equal pressures keep the order of the table, in whatever order the labels were seen.
    forth = seen(([Label.RECOVERY_FAILURE] * 8, 0.0), ([Label.INVALID_TOOL_CALL] * 8, 0.0))
    back = seen(([Label.INVALID_TOOL_CALL] * 8, 0.0), ([Label.RECOVERY_FAILURE] * 8, 0.0))
    assert proposals(make("rules"), forth, seed=1) == proposals(make("rules"), back, seed=2)
    assert guidelines(make("rules"), back) == (GUIDELINE_FOR[Label.INVALID_TOOL_CALL], RECOVER)
    stored = FailureProfile.from_dict(json.loads(json.dumps(forth.to_dict())))
    assert proposals(make("rules"), stored) == proposals(make("rules"), forth)


def test_a_guideline_of_the_base_is_not_repeated() -> None:
    base = Interface(guidelines=(ABSTAIN,))
    assert guidelines(make("rules", interface=base), seen(([Label.SPURIOUS_TOOL_CALL] * 8, 0.0))) == (ABSTAIN,)


@pytest.mark.parametrize("kind", WITHOUT_MODEL)
def test_a_state_passes_through_json(kind: str) -> None:
    profile = seen(([Label.SPURIOUS_TOOL_CALL] * 8, 0.0))
    curator, other = make(kind), make(kind)
    before = proposals(curator, profile)
    state = json.loads(json.dumps(curator.get_state()))
    other.set_state(state)
    assert other.get_state() == state
    assert proposals(other, profile) == before
    for wrong in ({"kind": "another"}, {}):
        with pytest.raises(UserError, match=f"curator of kind '{kind}'"):
            other.set_state(wrong)


def test_every_interface_passes_through_its_document() -> None:
    profile = seen(*(([label] * 12, 0.0) for label in GUIDELINE_FOR))
    for curator in (NoCurator(), FixedCurator(), RulesCurator()):
        (proposal,) = proposals(curator, profile)
        assert proposal.value is not None
        assert interface_from_json(dump_interface(proposal.value)) == proposal.value
    assert interface_from_json(dump_interface(RULES_BASE)) == RULES_BASE


def test_every_failure_but_an_inherited_state_has_a_guideline() -> None:
    assert set(GUIDELINE_FOR) == {label for label in Label if label.is_failure} - {Label.INHERITED_STATE}


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
