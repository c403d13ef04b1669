"""Selection of proposals that become arms (`curator.pick`): interfaces that show different things."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envs.interface import Interface
from policies.proposer import Proposal


def shown_text(interface: Interface) -> tuple[object, ...]:
    """The content of an interface, without case, spaces, full stops and order."""
    guidelines = {" ".join(text.split()).rstrip(" .").casefold() for text in interface.guidelines}
    return (frozenset(interface.schema_cues), interface.recovery, frozenset(guidelines))


def likeliest_first(proposals: Sequence[Proposal[Interface]]) -> list[Proposal[Interface]]:
    """The proposals by decreasing mean log-prob (nats) of their tokens; proposals without a sample first."""

    def mean(proposal: Proposal[Interface]) -> float:
        sample = proposal.sample
        return 0.0 if sample is None else sum(sample.sampled_logprobs_T) / max(1, sample.sampled_tokens)

    return sorted(proposals, key=mean, reverse=True)


def first_distinct(proposals: Sequence[Proposal[Interface]], known: Sequence[Interface], most: int) -> list[Interface]:
    """The first accepted interfaces, at most `most`, that differ from each other and from `known`."""
    seen = {shown_text(interface) for interface in known}
    picked: list[Interface] = []
    for each in proposals:
        if each.value is None or each.rejection is not None or len(picked) >= most:
            continue
        if shown_text(each.value) not in seen:
            seen.add(shown_text(each.value))
            picked.append(each.value)
    return picked


def most_varied(
    proposals: Sequence[Proposal[Interface]], known: Sequence[Interface], most: int, *, tried: Sequence[Interface] = ()
) -> list[Interface]:
    """At most `most` accepted interfaces that differ most from each other and from those `tried`, none as in `known`.

    The less likely half is left out first, if enough are left. The next one is farthest from its nearest neighbour by
    the Jaccard index of the words, and the likelier one of equally far ones.
    """
    distinct = first_distinct(likeliest_first(proposals), known, len(proposals))
    left = distinct[: max(most, (len(distinct) + 1) // 2)]
    met = [_words(interface) for interface in (*known, *tried)]
    picked: list[Interface] = []
    while left and len(picked) < most:
        nearest = [max((_alike(_words(each), words) for words in met), default=0.0) for each in left]
        picked.append(left.pop(nearest.index(min(nearest))))
        met.append(_words(picked[-1]))
    return picked


def _words(interface: Interface) -> frozenset[str]:
    said = " ".join((*interface.guidelines, str(interface.recovery), *map(str, interface.schema_cues)))
    return frozenset(re.findall(r"\w+", said.casefold()))


def _alike(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / max(1, len(left | right))
