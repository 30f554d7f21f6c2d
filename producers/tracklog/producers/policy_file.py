"""A policy in a file: TOML, its conditions in CEL, the first rule that fits decides.

    default = "allow"

    [budgets]
    turns = 40
    cost_micro_usd = 2_000_000

    [[rules]]
    name = "large refunds"
    when = "tool == 'refund' && args.amount > 100"
    then = "hold"
    may_approve = ["ada", "role:manager"]
    expires_in_s = 86_400
    then_ask = [{ may_approve = ["role:director"], expires_in_s = 3_600 }]

Nothing is let through because a rule could not be asked. A condition whose answer rests on an argument that is not
there grants nothing: its rule decides as if it fitted when it denies or holds, and is passed over when it allows. One
that cannot be applied (a text compared with a number) refuses the call.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from pydantic import ValidationError

from tracklog.producers.policy import Decision, Situation, Step, deny
from tracklog.producers.spend import Spend
from tracklog.producers.tools import Tool
from tracklog.schemas.approvals import EXPIRES_S_MAX, ROLE, STEPS_MAX, TENANT
from tracklog.schemas.condition import Condition, Missing
from tracklog.schemas.errors import InputError
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.values import Budgets, Ruling, ToolCall

__all__ = ["SAMPLE", "PolicyFile", "load_policy"]

SAMPLE: Final[Mapping[str, Any]] = {
    "tool": "",
    "effect": "",
    "args": {},
    "tenant": "",
    "agent": "",
    "turn": 0,
    "spend": Spend()._asdict(),
}
"""What a condition may read, with a value of its type."""

_WORDS: Final = tuple(word.value for word in (Ruling.ALLOW, Ruling.DENY, Ruling.HOLD))
_FILE_KEYS: Final = ("default", "budgets", "rules")
_RULE_KEYS: Final = ("name", "when", "then", "reason", "may_approve", "requester_may", "expires_in_s", "then_ask")
CONDITION_CHARS_MAX: Final = 16 * 1024
WORDS_CHARS_MAX: Final = TEXT_FIELD_CHARS_MAX // 2 - 1
"""Of a name and of a reason: together they make the rule that is recorded."""
_OF_HOLDS: Final = ("may_approve", "requester_may", "expires_in_s", "then_ask")
_STEP_KEYS: Final = ("may_approve", "expires_in_s")
APPROVERS_MAX: Final = 64


class Rule(NamedTuple):
    """`when` None fits every call."""

    name: str
    when: Condition | None
    decision: Decision


class PolicyFile:
    """The rules of one file. `version` is of its bytes: another byte is another version."""

    def __init__(self, data: bytes, name: str) -> None:
        """Raises InputError that names the file, the line and the rule, and says what would be right."""
        self.version: Final = f"sha256:{hashlib.sha256(data).hexdigest()[:32]}"
        self._name = name
        table = self._parsed(data)
        self.text: Final = data.decode()
        self._rule_lines = _lines(data, re.compile(r"\s*\[\[\s*rules\s*\]\]"))
        self._check_keys("", table, _FILE_KEYS)
        if "default" not in table:
            raise self._wrong("", "no default is stated", 'write default = "deny" (or "allow", "hold") at the top')
        self._default = Decision(self._ruling("", "default", table["default"]), "default")
        self.budgets: Final = self._budgets(table.get("budgets", {}))
        self._rules = tuple(self._read_rules(table.get("rules", [])))

    def decide(self, call: ToolCall, tool: Tool, situation: Situation) -> Decision:
        """The decision of the first rule that fits, or the default."""
        spend = situation.spend
        fields = {
            "tool": tool.name,
            "effect": tool.effect.value,
            "args": orjson.loads(call.arguments or "{}"),
            "tenant": situation.tenant,
            "agent": situation.agent,
            "turn": spend.turns,
            "spend": spend._asdict(),
        }
        for rule in self._rules:
            try:
                answer = True if rule.when is None else rule.when.answer(fields)
            except InputError as error:
                return deny(f"{rule.name}: its condition cannot be applied: {error}"[:TEXT_FIELD_CHARS_MAX])
            if answer is True:
                return rule.decision
            if isinstance(answer, Missing) and rule.decision.ruling is not Ruling.ALLOW:
                words = f"{rule.decision.rule} ({answer.name}, which it rests on, is not there)"
                return rule.decision._replace(rule=words[:TEXT_FIELD_CHARS_MAX])
        return self._default

    def _parsed(self, data: bytes) -> dict[str, Any]:
        try:
            return tomllib.loads(data.decode())
        except UnicodeDecodeError as error:
            raise InputError(f"policy {self._name}: it is not UTF-8: {error}", hint="save it as UTF-8") from error
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"policy {self._name}: {error}", hint="see https://toml.io for the form") from error

    def _budgets(self, table: Any) -> Budgets:
        known = tuple(Budgets.model_fields)
        if not isinstance(table, dict):
            raise self._wrong("budgets", "it is no table", "write [budgets] on a line of its own")
        self._check_keys("budgets", table, known)
        try:
            return Budgets(**table)
        except ValidationError as error:
            key = ".".join(map(str, error.errors()[0]["loc"]))
            reason = f"{key} is {table.get(key)!r}"
            raise self._wrong(
                "budgets", reason, "give whole numbers of 0 or more; leave out what has no limit"
            ) from error

    def _read_rules(self, tables: Any) -> Iterator[Rule]:
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self._wrong("rules", "they are no list of tables", "begin each rule with [[rules]]")
        seen: set[str] = set()
        for number, table in enumerate(tables):
            rule = self._read_rule(self._place(number, table), table)
            if rule.name in seen:
                raise self._wrong(self._place(number, table), "an earlier rule has this name", "name it otherwise")
            seen.add(rule.name)
            yield rule

    def _read_rule(self, place: str, table: Mapping[str, Any]) -> Rule:
        self._check_keys(place, table, _RULE_KEYS)
        name = self._text(place, table, "name")
        if not name:
            raise self._wrong(place, "it has no name", "give it one; it is recorded with every ruling")
        if "then" not in table:
            raise self._wrong(place, "it does not say what then", f"write then = one of {', '.join(_WORDS)}")
        ruling = self._ruling(place, "then", table["then"])
        if ruling is not Ruling.HOLD and any(key in table for key in _OF_HOLDS):
            raise self._wrong(place, f"only a hold has {' or '.join(_OF_HOLDS)}", 'leave them out, or then = "hold"')
        reason = self._text(place, table, "reason")
        words = f"{name}: {reason}" if reason else name
        decision = Decision(
            ruling,
            words,
            self._approvers(place, table),
            self._expiry(place, table),
            reason,
            self._steps(place, table),
            self._requester(place, table),
        )
        return Rule(name, self._when(place, table), decision)

    def _when(self, place: str, table: Mapping[str, Any]) -> Condition | None:
        text = self._text(place, table, "when", chars_max=CONDITION_CHARS_MAX)
        if not text:
            return None
        unknown = [one for one in re.findall(r"\bspend\.(\w+)", text) if one not in Spend._fields]
        if unknown:
            raise self._wrong(place, f"there is no spend.{unknown[0]}", f"known are {', '.join(Spend._fields)}")
        return Condition(text, SAMPLE, f"{self._at(place)}: when")

    def _ruling(self, place: str, key: str, word: Any) -> Ruling:
        if word not in _WORDS:
            raise self._wrong(place, f"{key} is {word!r}", f"use one of {', '.join(_WORDS)}")
        return Ruling(word)

    def _approvers(self, place: str, table: Mapping[str, Any]) -> tuple[str, ...]:
        names = table.get("may_approve", [])
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise self._wrong(
                place, f"may_approve is {names!r}", 'give a list of names, such as ["ada", "role:manager"]'
            )
        if len(names) > APPROVERS_MAX:
            raise self._wrong(place, f"may_approve has {len(names)} entries", f"at most {APPROVERS_MAX}; name a role")
        for name in names:
            if len(name) > WORDS_CHARS_MAX:
                raise self._wrong(place, f"may_approve has {name[:40]!r}...", f"at most {WORDS_CHARS_MAX} characters")
            wrong = [word for word in name.split() if word in (ROLE, TENANT) or not word.startswith((ROLE, TENANT))]
            if name.startswith((ROLE, TENANT)) and wrong:
                hint = "write role:NAME, tenant:NAME or both; or a person's name"
                raise self._wrong(place, f"may_approve has {name!r}, in which {wrong[0]!r} says nothing", hint)
        return tuple(names)

    def _requester(self, place: str, table: Mapping[str, Any]) -> bool:
        may = table.get("requester_may", False)
        if not isinstance(may, bool):
            raise self._wrong(place, f"requester_may is {may!r}", "give true or false")
        return may

    def _steps(self, place: str, table: Mapping[str, Any]) -> tuple[Step, ...]:
        """Who is asked after those of the rule, when nobody has answered in time."""
        given = table.get("then_ask", [])
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            hint = 'give tables, such as [{ may_approve = ["role:director"], expires_in_s = 3600 }]'
            raise self._wrong(place, f"then_ask is {given!r}", hint)
        if len(given) > STEPS_MAX:
            raise self._wrong(place, f"then_ask has {len(given)} steps", f"at most {STEPS_MAX}: a request ends")
        for one in given:
            self._check_keys(f"{place}, then_ask", one, _STEP_KEYS)
            if not one.get("may_approve"):
                raise self._wrong(place, "a step of then_ask asks nobody", "name who may approve then")
        steps = tuple(Step(self._approvers(place, one), self._expiry(place, one)) for one in given)
        if steps and (table.get("expires_in_s") is None or any(one.expires_in_s is None for one in steps[:-1])):
            raise self._wrong(place, "nobody is asked after a step that never ends", "give expires_in_s before it")
        return steps

    def _expiry(self, place: str, table: Mapping[str, Any]) -> float | None:
        seconds = table.get("expires_in_s")
        if seconds is None:
            return None
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < EXPIRES_S_MAX:
            raise self._wrong(place, f"expires_in_s is {seconds!r}", "give seconds above 0, or leave it out")
        return float(seconds)

    def _text(self, place: str, table: Mapping[str, Any], key: str, chars_max: int = WORDS_CHARS_MAX) -> str:
        text = table.get(key, "")
        if not isinstance(text, str) or len(text) > chars_max:
            raise self._wrong(place, f"{key} is no text of at most {chars_max} characters", "shorten it, in quotes")
        return text

    def _check_keys(self, place: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        unknown = [key for key in table if key not in known]
        if unknown:
            raise self._wrong(place, f"there is no {unknown[0]!r} here", f"known are {', '.join(known)}")

    def _place(self, number: int, table: Mapping[str, Any]) -> str:
        line = self._rule_lines[number] if number < len(self._rule_lines) else None
        words = f"rule {number + 1} {table.get('name', '')!r}"
        return words if line is None else f"line {line}, {words}"

    def _at(self, place: str) -> str:
        return f"policy {self._name}, {place}" if place else f"policy {self._name}"

    def _wrong(self, place: str, reason: str, hint: str) -> InputError:
        return InputError(f"{self._at(place)}: {reason}", hint=hint)


def load_policy(path: Path) -> PolicyFile:
    """The policy of a file. Raises InputError for one that cannot be read or is not right."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"policy {path}: {error.strerror or error}", hint="is the path right?") from error
    return PolicyFile(data, str(path))


def _lines(data: bytes, heading: re.Pattern[str]) -> list[int]:
    return [number for number, line in enumerate(data.decode().splitlines(), 1) if heading.match(line)]
