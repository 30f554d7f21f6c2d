"""The verdict table of DESIGN §5, row by row."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import pytest

from tests.support.chains import Chain, Made
from tracklog.schemas.codec import Event, decode_event
from tracklog.schemas.events import Observed, OwnershipReleased
from tracklog.schemas.head import EMPTY_HEAD, Head, Judgement, Verdict, advance, judge
from tracklog.schemas.limits import ACCEPTED_WINDOW
from tracklog.schemas.values import Body, Driver, ObservedKind

ACCEPTED = Judgement(Verdict.ACCEPTED, fault=False)
DUPLICATE = Judgement(Verdict.DUPLICATE, fault=False)
FENCED = Judgement(Verdict.FENCED, fault=False)
LOST_CLAIM = Judgement(Verdict.LOST_CLAIM, fault=False)
GAP = Judgement(Verdict.GAP, fault=False)


def note(text: str = "", number: int = 0) -> Observed:
    return Observed(kind=ObservedKind.STEP, name="note", occurrence=number, value=Body.of(text))


def event_of(made: Made) -> Event:
    return decode_event(made.key, made.value, made.headers)


def judged(records: Iterable[Made], head: Head = EMPTY_HEAD) -> tuple[list[Judgement], Head]:
    """The verdicts on records in log order, and the head after them."""
    verdicts = []
    for made in records:
        event = event_of(made)
        verdicts.append(judge(head, event))
        head = advance(head, event, verdicts[-1])
    return verdicts, head


def last_verdict(*records: Made) -> Judgement:
    return judged(records)[0][-1]


@pytest.fixture
def chain() -> Chain:
    """A claimed trajectory with two notes: seqs 0 to 2, epoch 1."""
    chain = Chain("t")
    chain.claim("first")
    chain.add(note("a"))
    chain.add(note("b"))
    return chain


def rival(chain: Chain) -> Chain:
    """Another writer with the same view of the log; what it adds is its own."""
    other = copy.copy(chain)
    other.records = []
    return other


def test_a_chain_as_its_owner_wrote_it_is_accepted(chain: Chain) -> None:
    verdicts, head = judged(chain.records)

    assert verdicts == [ACCEPTED] * 3
    assert (head.epoch, head.seq, head.hash) == (1, 2, chain.hash)


def test_tampered_a_record_that_does_not_have_the_hash_it_states(chain: Chain) -> None:
    good = chain.add(note("c"))
    altered = good._replace(value=good.value[:-1] + bytes([good.value[-1] ^ 2]))

    assert last_verdict(*chain.records[:3], altered) == Judgement(Verdict.TAMPERED, fault=True)


def test_tampered_is_told_first_even_of_a_former_owner(chain: Chain) -> None:
    late = chain.peek(note("late"))
    chain.claim("second")
    altered = late._replace(headers=(("tl-hash", bytes(32)),))

    assert last_verdict(*chain.records, altered) == Judgement(Verdict.TAMPERED, fault=True)


def test_an_edited_event_with_a_new_hash_is_contradicted_by_its_successor(chain: Chain) -> None:
    edited = rival(chain).add(note("edited"))
    chain.add(note("c"))
    successor = chain.add(note("d"))

    assert judged([*chain.records[:3], edited, successor])[0][3:] == [ACCEPTED, Judgement(Verdict.FORK, fault=True)]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_duplicate_any_of_the_last_accepted(chain: Chain, at: int) -> None:
    verdicts, head = judged([*chain.records, chain.records[at]])

    assert verdicts[-1] == DUPLICATE
    assert head == judged(chain.records)[1]


def test_fenced_whatever_a_former_owner_writes(chain: Chain) -> None:
    former = rival(chain)
    chain.claim("second")
    pipeline = [former.add(note("late", n)) for n in range(3)]

    assert judged([*chain.records, *pipeline])[0][-3:] == [FENCED] * 3


def test_fenced_the_second_of_two_claims_that_race(chain: Chain) -> None:
    """The first one raised the epoch, so the row "fenced" comes before "lost claim"."""
    loser = rival(chain)
    chain.claim("winner")

    assert last_verdict(*chain.records, loser.claim("loser")) == FENCED


def test_two_first_claims_race_and_one_wins() -> None:
    winner, loser = Chain("t"), Chain("t")

    verdicts, head = judged([winner.claim("winner"), loser.claim("loser")])

    assert verdicts == [ACCEPTED, FENCED]
    assert (head.epoch, head.hash) == (1, winner.hash)


def test_the_pipeline_of_a_lost_claimant_is_harmless(chain: Chain) -> None:
    """It guessed the epoch and seq that the winner now has: only what it hangs on tells the two apart [W03]."""
    loser = rival(chain)
    chain.claim("winner")
    lost = [loser.claim("loser"), *(loser.add(note("lost", n)) for n in range(3))]

    verdicts, head = judged([*chain.records, *lost])
    then, after = judged([chain.add(note("won"))], head)

    assert verdicts[4:] == [FENCED, Judgement(Verdict.FORK, fault=False), GAP, GAP]
    assert then == [ACCEPTED]
    assert after.hash == chain.hash


def test_the_pipeline_of_a_lost_claimant_is_harmless_when_the_winner_has_gone_on(chain: Chain) -> None:
    loser = rival(chain)
    chain.claim("winner")
    won = [chain.add(note("won", n)) for n in range(5)]
    lost = [loser.claim("loser"), *(loser.add(note("lost", n)) for n in range(3))]

    verdicts, head = judged([*chain.records, *lost])

    assert not any(judgement.fault for judgement in verdicts)
    assert [judgement.verdict for judgement in verdicts[-3:]] == [Verdict.STALE] * 3
    assert head.hash == won[-1].hash


def test_stale_inside_the_window_is_a_fault_of_the_owner(chain: Chain) -> None:
    other = rival(chain)
    chain.add(note("one"))

    assert last_verdict(*chain.records, other.add(note("two"))) == Judgement(Verdict.STALE, fault=True)


@pytest.mark.parametrize(
    ("behind", "fault"), [(ACCEPTED_WINDOW - 1, True), (ACCEPTED_WINDOW, False), (ACCEPTED_WINDOW + 1, False)]
)
def test_stale_is_harmless_as_soon_as_no_one_can_tell_it_from_a_retry(chain: Chain, behind: int, fault: bool) -> None:
    other = rival(chain)
    for number in range(behind + 1):
        chain.add(note("on", number))

    assert last_verdict(*chain.records, other.add(note("other"))) == Judgement(Verdict.STALE, fault)


def test_a_retry_is_a_duplicate_to_the_end_of_the_window_and_stale_behind_it(chain: Chain) -> None:
    retried = chain.add(note("retried"))
    for number in range(ACCEPTED_WINDOW - 1):
        chain.add(note("on", number))

    inside, head = judged([*chain.records, retried])
    beyond, _ = judged([chain.add(note("one more")), retried], head)

    assert inside[-1] == DUPLICATE
    assert beyond == [ACCEPTED, Judgement(Verdict.STALE, fault=False)]


def test_lost_claim_the_owner_was_faster(chain: Chain) -> None:
    claimant = rival(chain)
    chain.add(note("faster"))

    assert last_verdict(*chain.records, claimant.claim("slow")) == LOST_CLAIM


def test_lost_claim_one_that_hangs_on_another_history(chain: Chain) -> None:
    claimant = rival(chain)
    claimant.hash = bytes(range(32))

    assert last_verdict(*chain.records, claimant.claim("confused")) == LOST_CLAIM


def test_gap_what_follows_a_lost_record_until_it_is_appended_again(chain: Chain) -> None:
    lost, behind, last = (chain.add(note("c", n)) for n in range(3))

    verdicts, head = judged([*chain.records[:3], behind, last, lost, behind, last])

    assert verdicts[3:] == [GAP, GAP, ACCEPTED, ACCEPTED, ACCEPTED]
    assert head.seq == 5


def test_gap_an_epoch_above_the_heads(chain: Chain) -> None:
    ahead = rival(chain)
    ahead.epoch += 1

    assert last_verdict(*chain.records, ahead.add(note("ahead"))) == GAP


def test_gap_anything_but_a_claim_before_the_first_claim() -> None:
    eager = Chain("t")

    assert last_verdict(eager.add(note("eager"))) == GAP


def test_a_claim_that_came_before_its_turn_counts_once_it_is_appended_again(chain: Chain) -> None:
    """And its owner answers for forks like any other: having looked lost once is no excuse for ever."""
    missing = chain.add(note("lost on the way"))
    claim = chain.claim("second")
    other = rival(chain)
    mine = chain.add(note("mine"))

    verdicts, _ = judged([*chain.records[:3], claim, missing, claim, mine, other.add(note("theirs"))])

    assert verdicts[3:] == [LOST_CLAIM, ACCEPTED, ACCEPTED, ACCEPTED, Judgement(Verdict.STALE, fault=True)]


def test_fork_by_the_owner_is_a_fault(chain: Chain) -> None:
    forked = rival(chain)
    forked.hash = bytes(range(32))

    assert last_verdict(*chain.records, forked.add(note("forked"))) == Judgement(Verdict.FORK, fault=True)


def test_a_retry_is_never_taken_for_a_lost_one(chain: Chain) -> None:
    """Retries of the whole accepted history, claim included, must not excuse a later fork."""
    verdicts, head = judged([*chain.records, *chain.records])
    other = rival(chain)
    mine = chain.add(note("mine"))

    then, _ = judged([mine, other.add(note("theirs"))], head)

    assert verdicts[3:] == [DUPLICATE] * 3
    assert then[-1] == Judgement(Verdict.STALE, fault=True)


def test_accepted_raises_the_epoch_and_names_the_owner_until_it_releases(chain: Chain) -> None:
    claim = event_of(chain.claim("second"))
    _, claimed = judged(chain.records)
    nonce = claim.body.nonce  # type: ignore[union-attr]
    chain.add(OwnershipReleased(owner="second", nonce=nonce))
    _, released = judged(chain.records)

    assert (claimed.epoch, claimed.owner) == (2, nonce)
    assert (released.epoch, released.owner) == (2, None)


def test_an_unknown_type_is_accepted_like_any_other(chain: Chain) -> None:
    made = chain.add(note("c"))
    unknown = made._replace(value=b"\xc3\x01" + b"\xff" * 8 + made.value[10:], headers=(("tl-type", b"Dreamed"),))

    assert last_verdict(*chain.records[:3], unknown) == ACCEPTED


def test_a_header_does_not_make_a_claim(chain: Chain) -> None:
    """Headers are not hashed and may be lost on the way to Parquet: the verdict must not depend on one."""
    ahead = rival(chain)
    ahead.seq += 5
    made = ahead.add(note("c"))
    value = b"\xc3\x01" + b"\xff" * 8 + made.value[10:]
    named = made._replace(value=value, headers=(("tl-type", b"OwnershipClaimed"),))
    bare = made._replace(value=value, headers=())

    assert last_verdict(*chain.records, named) == last_verdict(*chain.records, bare) == GAP


def test_the_head_remembers_a_bounded_number_of_hashes(chain: Chain) -> None:
    former = rival(chain)
    chain.claim("second")
    lost = [former.claim("loser"), *(former.add(note("lost", n)) for n in range(2 * ACCEPTED_WINDOW))]
    for number in range(2 * ACCEPTED_WINDOW):
        chain.add(note("on", number))

    _, head = judged([*chain.records, *lost])

    assert (len(head.recent), len(head.lost)) == (ACCEPTED_WINDOW, ACCEPTED_WINDOW)
    assert head.recent[-1] == head.hash


def test_the_driver_of_a_claim_has_no_say_in_the_verdict() -> None:
    verdicts = [last_verdict(Chain("t", driver=driver).claim()) for driver in Driver]

    assert verdicts == [ACCEPTED] * len(Driver)
