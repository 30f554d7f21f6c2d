"""Weakened rules, planted one at a time: each has to be found by some seed of the first thousand.

The brackets name the rule of DESIGN §8 or the model's counterexample that a mutant breaks.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants_dispatch import DISPATCH, Mutant
from tests.simulation.mutants_log import LOG
from tests.simulation.mutants_owner import OWNER
from tests.simulation.scenario import HELD, Fault, Scenario, Trigger

__all__ = ["KILLERS", "MUTANTS", "WRITTEN"]

MUTANTS: Final[dict[str, Mutant]] = {**DISPATCH, **OWNER, **LOG}
"""All that was thought of."""
KILLERS: Final[dict[str, int]] = {
    "Done before the outcome [rule 5]": 2,
    "a call that was tried is forgotten by the next [X12]": 8,
    "a cancel without a slot [X13]": 0,
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
    "the ledger is compacted by call [K01]": 39,
    "the ledger is compacted by call and slot [K02]": 39,
    "the next owner does not wait for the grace [Z03, Z04]": 29,
    "the owner itself ends a cancelled call [X13]": 20,
    "trimmed below the last Done [K07]": 353,
    "trimmed while every call has a Done [K06]": 659,
    "the events are not read before the send [K03, K08]": 2,
    "the events are not read before a cancelled call is sent [K03]": 45,
    "a tool in the process runs before its intent was read back [Z02]": 10,
    "the last report is believed for all [W05]": 137,
    "the inbox is taken by what is known [Y03]": 35,
    "the inbox is passed over while undecided [Y03]": 1,
    "the inbox is trimmed of what nobody has taken": 4,
    "what was taken and not given out is waited for": 167,
}
"""A seed that finds it."""
WRITTEN: Final[dict[str, Scenario]] = {
    # an edit opens a second request; then somebody who may decide about both has his word about the first
    "a decision about any request of the call [Y05]": Scenario(
        seed=1, work=((("opaque_held",),),), approvers=((5.0, "edit"), (7.0, "approve"))
    ),
    # the ledger is trimmed all the time, and every dispatcher dies with a call that was made and not said
    "trimmed by events that were read before the ledger's end [K05]": Scenario(
        seed=2,
        work=((("opaque",),),),
        triggers=(Trigger("effect", 1, 0, True, Fault("kill", 8.0)),),
        person=True,
        trims=0.15,
    ),
    # an owner is replaced while its intent is on its way, and wakes behind what its successor has written
    "an append is judged by the head [W06]": Scenario(
        seed=1,
        work=((("opaque_here",),),),
        triggers=(Trigger("ToolIntent", 1, HELD, False, Fault("replace", 3.0)),),
        person=True,
    ),
    "in the process the deadline is not looked at last [rule 11]": Scenario(
        seed=1,
        work=((("opaque_here",),),),
        triggers=(Trigger("ToolIntent", 1, 0, False, Fault("replace", 70.0)),),
        person=True,
    ),
    "in the process a key is used after its life [X17-X19]": Scenario(
        seed=1,
        work=((("idempotent_here",),),),
        triggers=(Trigger("effect", 1, 0, False, Fault("kill", 100.0)),),
        person=True,
    ),
    "messages of a sender out of order": Scenario(
        seed=1, work=((("send", "send", "send"),), (("receive", "receive", "receive"),)), person=True
    ),
    "what is open side by side shares a lane": Scenario(seed=2, work=((("opaque", "opaque"),),), person=True),
    "a claim is judged by the owner's name [Y01]": Scenario(
        seed=1,
        work=((("opaque_here",),),),
        triggers=(Trigger("ToolIntent", 1, 0, False, Fault("replace", 12.0)),),
        person=True,
    ),
}
"""Found by no seed of the first thousand: work and faults that were written for them."""
