"""Policy files: what they decide, and what is said of one that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tracklog.producers.policy import Situation
from tracklog.producers.policy_file import PolicyFile, load_policy
from tracklog.producers.spend import Spend, exhausted, remaining
from tracklog.producers.tools import Tool, tool
from tracklog.schemas.errors import InputError
from tracklog.schemas.values import Budgets, Ruling, ToolCall

NOWHERE = Situation()
POLICY = """
default = "deny"

[budgets]
tool_calls = 3

[[rules]]
name = "house rule"
when = "tenant == 'closed'"
then = "deny"

[[rules]]
name = "large"
when = "tool == 'refund' && args.amount > 100.0"
then = "hold"
may_approve = ["ada"]
expires_in_s = 60
reason = "more than the desk may give"

[[rules]]
name = "late"
when = "turn > 5 || spend.cost_micro_usd >= 1000"
then = "deny"

[[rules]]
name = "refunds"
when = "tool == 'refund'"
then = "allow"
"""


@tool(effect="opaque")
def refund(amount: float | None = None, note: str = "") -> str:
    return "done"


@tool(effect="readonly")
def look(what: str) -> str:
    return what


def ruling(text: str, used: Tool, arguments: str, situation: Situation = NOWHERE) -> tuple[Ruling, str]:
    call = ToolCall(call_id="c1", tool=used.name, arguments=arguments)
    decision = PolicyFile(text.encode(), "p.toml").decide(call, used, situation)
    return decision.ruling, decision.rule


@pytest.mark.parametrize(
    ("used", "arguments", "situation", "expected", "rule"),
    [
        (refund, '{"amount":100.5}', Situation(), Ruling.HOLD, "large: more than the desk may give"),
        (refund, '{"amount":100}', Situation(), Ruling.ALLOW, "refunds"),
        (
            refund,
            "{}",
            Situation(),
            Ruling.HOLD,
            "large: more than the desk may give (amount, which it rests on, is not there)",
        ),
        (refund, '{"amount":500}', Situation(tenant="closed"), Ruling.DENY, "house rule"),
        (refund, '{"amount":1}', Situation(spend=Spend(turns=6)), Ruling.DENY, "late"),
        (refund, '{"amount":1}', Situation(spend=Spend(cost_micro_usd=1000)), Ruling.DENY, "late"),
        (look, '{"what":"it"}', Situation(), Ruling.DENY, "default"),
    ],
)
def test_the_first_rule_that_fits_decides(
    used: Tool, arguments: str, situation: Situation, expected: Ruling, rule: str
) -> None:
    assert ruling(POLICY, used, arguments, situation) == (expected, rule)


def test_a_hold_says_who_may_decide_and_until_when() -> None:
    call = ToolCall(call_id="c1", tool="refund", arguments='{"amount":200}')

    decision = PolicyFile(POLICY.encode(), "p.toml").decide(call, refund, Situation())

    assert (decision.may_approve, decision.expires_in_s) == (("ada",), 60.0)
    assert decision.reason == "more than the desk may give"


def test_a_rule_that_cannot_be_applied_lets_nothing_through() -> None:
    text = 'default = "allow"\n[[rules]]\nname = "big"\nwhen = "args.note > 3"\nthen = "deny"\n'

    found, rule = ruling(text, refund, '{"note":"four"}')

    assert found is Ruling.DENY
    assert "big: its condition cannot be applied" in rule


@pytest.mark.parametrize(
    ("then", "condition", "arguments", "expected"),
    [
        ("deny", "args.amount > 3.0", "{}", Ruling.DENY),
        ("deny", "!(args.amount > 3.0)", "{}", Ruling.DENY),
        ("hold", "args.amount > 3.0 && tool == 'refund'", "{}", Ruling.HOLD),
        ("hold", "args.parts[2] == 'x'", '{"parts":[]}', Ruling.HOLD),
        ("deny", "args.amount > 3.0 && tool == 'other'", "{}", Ruling.ALLOW),
        ("deny", "has(args.amount) && args.amount > 3.0", "{}", Ruling.ALLOW),
    ],
)
def test_an_argument_that_is_not_there_makes_no_way_past_a_rule_that_denies_or_holds(
    then: str, condition: str, arguments: str, expected: Ruling
) -> None:
    """An answer that does not rest on it stands: `false && missing` is false."""
    text = f'default = "allow"\n[[rules]]\nname = "big"\nwhen = "{condition}"\nthen = "{then}"\n'

    assert ruling(text, refund, arguments)[0] is expected


def test_an_argument_that_is_not_there_allows_nothing() -> None:
    text = 'default = "deny"\n[[rules]]\nname = "small"\nwhen = "!(args.amount > 3.0)"\nthen = "allow"\n'

    assert ruling(text, refund, "{}") == (Ruling.DENY, "default")
    assert ruling(text, refund, '{"amount":1}') == (Ruling.ALLOW, "small")


def test_another_byte_is_another_version() -> None:
    one, same, other = (PolicyFile(text.encode(), "p") for text in (POLICY, POLICY, POLICY + "#"))

    assert one.version == same.version != other.version


WRONG = {
    "no default": ("x = 1\n", "there is no 'x' here"),
    "unstated default": ("[budgets]\nturns = 3\n", "no default is stated"),
    "default": ('default = "maybe"\n', "default is 'maybe'"),
    "form": ('default = "deny"\n[[rules]\n', "at line 2"),
    "budget": ('default = "deny"\n[budgets]\nmoney = 3\n', "budgets: there is no 'money' here"),
    "negative": ('default = "deny"\n[budgets]\nturns = -3\n', "budgets: turns is -3"),
    "budgets": ('default = "deny"\nbudgets = 3\n', "budgets: it is no table"),
    "rules": ('default = "deny"\nrules = [1]\n', "no list of tables"),
    "name": ('default = "deny"\n[[rules]]\nthen = "deny"\n', "line 2, rule 1 '': it has no name"),
    "then": ('default = "deny"\n[[rules]]\nname = "a"\n', "line 2, rule 1 'a': it does not say what then"),
    "key": ('default = "deny"\n[[rules]]\nname = "a"\nif = "b"\n', "line 2, rule 1 'a': there is no 'if' here"),
    "twice": (
        'default = "deny"\n[[rules]]\nname = "a"\nthen = "deny"\n\n[[rules]]\nname = "a"\nthen = "deny"\n',
        "line 6, rule 2 'a': an earlier rule has this name",
    ),
    "parse": (
        'default = "deny"\n[[rules]]\nname = "a"\nwhen = "tool =="\nthen = "deny"\n',
        "line 2, rule 1 'a': when 'tool =='",
    ),
    "unknown": (
        'default = "deny"\n[[rules]]\nname = "a"\nwhen = "amount > 3"\nthen = "deny"\n',
        "there is no field 'amount'",
    ),
    "spend": (
        'default = "deny"\n[[rules]]\nname = "a"\nwhen = "spend.money > 3"\nthen = "deny"\n',
        "there is no spend.money",
    ),
    "not a condition": ('default = "deny"\n[[rules]]\nname = "a"\nwhen = "turn"\nthen = "deny"\n', "it gives 0"),
    "approver of no hold": (
        'default = "deny"\n[[rules]]\nname = "a"\nthen = "deny"\nmay_approve = ["b"]\n',
        "only a hold has may_approve",
    ),
    "expiry": ('default = "deny"\n[[rules]]\nname = "a"\nthen = "hold"\nexpires_in_s = 0\n', "expires_in_s is 0"),
    "role": (
        'default = "deny"\n[[rules]]\nname = "a"\nthen = "hold"\nmay_approve = ["role:boss acme"]\n',
        "in which 'acme' says nothing",
    ),
    "nobody next": (
        'default = "deny"\n[[rules]]\nname = "a"\nthen = "hold"\nexpires_in_s = 1\nthen_ask = [{}]\n',
        "a step of then_ask asks nobody",
    ),
    "never next": (
        'default = "deny"\n[[rules]]\nname = "a"\nthen = "hold"\nthen_ask = [{ may_approve = ["b"] }]\n',
        "nobody is asked after a step that never ends",
    ),
    "endless": (
        'default = "deny"\n[[rules]]\nname = "a"\nthen = "hold"\nexpires_in_s = 1\nthen_ask = ['
        + ",".join(['{ may_approve = ["b"], expires_in_s = 1 }'] * 9)
        + "]\n",
        "then_ask has 9 steps",
    ),
    "requester": ('default = "deny"\n[[rules]]\nname = "a"\nthen = "hold"\nrequester_may = 1\n', "requester_may is 1"),
    "approvers": ('default = "deny"\n[[rules]]\nname = "a"\nthen = "hold"\nmay_approve = "b"\n', "may_approve is 'b'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_file_is_named_with_its_place_and_the_way_out(name: str, tmp_path: Path) -> None:
    text, words = WRONG[name]
    path = tmp_path / "policy.toml"
    path.write_text(text)

    with pytest.raises(InputError, match=re.escape(words)) as raised:
        load_policy(path)

    assert "policy.toml" in str(raised.value)
    assert raised.value.hint


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.toml"):
        load_policy(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("spend", "words"),
    [
        (Spend(turns=2, tool_calls=4, tokens=9), ""),
        (Spend(turns=3), "budget turns is used up: 2 of 2"),
        (Spend(tool_calls=5), "budget tool_calls is used up: 5 of 5"),
        (Spend(tokens=11), "budget tokens is used up: 10 of 10"),
        (Spend(wall_ms=10_000_000), ""),
    ],
)
def test_a_used_up_budget_is_named(spend: Spend, words: str) -> None:
    assert exhausted(Budgets(turns=2, tool_calls=5, tokens=10), spend) == words


def test_what_is_left_is_never_less_than_nothing() -> None:
    assert remaining(Budgets(turns=2, tokens=10), Spend(turns=1, tokens=12)) == Budgets(turns=1, tokens=0)
    assert remaining(Budgets(), Spend(turns=1)) is None
