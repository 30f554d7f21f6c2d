"""Weakened rules, planted one at a time: each has to be found by some seed of the first thousand.

The brackets name the rule of DESIGN §8 or the model's counterexample that a mutant breaks.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants_dispatch import DISPATCH, Mutant
from tests.simulation.mutants_owner import OWNER

__all__ = ["KILLERS", "MUTANTS"]

MUTANTS: Final[dict[str, Mutant]] = {**DISPATCH, **OWNER}
"""All that was thought of; those without a killer are not found yet."""
KILLERS: Final[dict[str, int]] = {
    "Done before the outcome [rule 5]": 2,
    "a call that was tried is forgotten by the next [X12]": 8,
    "a cancel without a slot [X13]": 2,
    "a cancelled call is looked at again and again": 689,
    "a deadline by monotonic time alone": 245,
    "a job is not waited for": 607,
    "a key for each attempt [rule 7]": 8,
    "a key is used after its life [X17-X19]": 8,
    "a loser leaves the call [X12]": 77,
    "a person is asked at once [X08]": 11,
    "a person is asked before the grace is over [X08]": 107,
    "a probe that does not wait for the grace [rule 7]": 587,
    "a process name for a nonce [Y01, X11]": 12,
    "a slot that was used counts as not used [X12]": 11,
    "a time-out counts as known": 17,
    "a winner that is late reports expired, without a slot [X06]": 5,
    "an append is judged by its last try [Y02]": 80,
    "an idempotent call expires [X07]": 245,
    "an outcome that is unknown counts as sent [rule 2]": 183,
    "any holder of the slot counts as oneself [X02]": 107,
    "expired because a probe said so, without a slot [X05]": 59,
    "intents that were not accepted [intent before effect]": 161,
    "no read-back of the ledger [X01, X02]": 107,
    "only the last is appended again [W07]": 137,
    "sent again in one's own slot [X12]": 11,
    "settled while the key may be used [X20-X22]": 682,
    "slots are taken behind a Done [rule 4]": 254,
    "the deadline is not looked at last [rule 5]": 245,
    "the deadline of the call for that of its attempt [X10]": 106,
    "the last decision counts [rule 10]": 0,
    "the ledger is compacted by call [K01]": 4,
    "the ledger is compacted by call and slot [K02]": 4,
    "the next owner does not wait for the grace [Z03, Z04]": 29,
    "the owner itself ends a cancelled call [X13]": 20,
    "trimmed below the last Done [K07]": 353,
    "trimmed while every call has a Done [K06]": 659,
    "the events are not read before the send [K03, K08]": 2,
    "the events are not read before a cancelled call is sent [K03]": 1723,
    "a tool in the process runs before its intent was read back [Z02]": 10,
    "the last report is believed for all [W05]": 137,
    "the inbox is taken by what is known [Y03]": 35,
}
"""A seed that finds it."""
