"""Rights in the form of each tool that grants them."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from tracklog.consumers.acl_formats import rendered
from tracklog.infra.acls import ROLES, rules_of
from tracklog.schemas.errors import InputError
from tracklog.schemas.topics import Topics

TOPICS = Topics("desk")
ARN = "arn:aws:kafka:eu-west-1:123456789012:cluster/desk/0a1b-2"
GIVEN = {"bootstrap": "broker:9092", "cluster": "desk-kafka", "arn": ARN}


def test_only_owners_write_events_and_only_dispatchers_the_ledger() -> None:
    writers: dict[str, list[str]] = {topic: [] for topic in TOPICS.all}
    for role in ROLES:
        for rule in rules_of(role, TOPICS):
            if "Write" in rule.operations:
                assert not rule.prefixed, "no right to write is given by a prefix"
                writers[rule.name].append(role)
    assert writers[TOPICS.events] == ["owner"]
    assert writers[TOPICS.attempts] == ["dispatcher"]
    assert writers[TOPICS.quarantine] == ["processor"]
    assert writers[TOPICS.controls] == ["operator"]
    assert writers[TOPICS.inbox] == ["owner", "dispatcher", "router", "api", "operator"]


def test_kafkas_own_tool_is_given_each_rule_as_one_command() -> None:
    commands = [shlex.split(line) for line in rendered("kafka", ROLES, TOPICS, GIVEN).splitlines() if line[0] != "#"]
    assert len(commands) == sum(len(rules_of(role, TOPICS)) for role in ROLES)
    events = [
        one for one in commands if one[one.index("--allow-principal") + 1] == "User:desk-owner" and "Write" in one
    ]
    assert [one[one.index("--topic") + 1] for one in events] == ["desk.events", "desk.inbox"]


def test_strimzis_users_carry_the_same_rules() -> None:
    users: list[dict[str, Any]] = [json.loads(one) for one in rendered("strimzi", ROLES, TOPICS, GIVEN).split("---\n")]
    assert [user["metadata"]["name"] for user in users] == [f"desk-{role}" for role in ROLES]
    for role, user in zip(ROLES, users, strict=True):
        assert user["metadata"]["labels"] == {"strimzi.io/cluster": "desk-kafka"}
        found = {(one["resource"]["name"], tuple(one["operations"])) for one in user["spec"]["authorization"]["acls"]}
        assert found == {(rule.name, rule.operations) for rule in rules_of(role, TOPICS)}


def test_a_policy_of_iam_names_topics_and_groups_of_the_cluster() -> None:
    policies = json.loads(rendered("iam", ["dispatcher", "reader"], TOPICS, GIVEN))
    written = [
        one["Resource"]
        for one in policies["desk-dispatcher"]["Statement"]
        if "kafka-cluster:WriteData" in one["Action"]
    ]
    base = "arn:aws:kafka:eu-west-1:123456789012:topic/desk/0a1b-2/"
    assert sorted(written) == [f"{base}desk.attempts", f"{base}desk.inbox"]
    assert policies["desk-reader"]["Statement"][0]["Resource"] == ARN
    assert "kafka-cluster:WriteDataIdempotently" not in json.dumps(policies["desk-reader"])


@pytest.mark.parametrize(("form", "missing"), [("strimzi", "--cluster"), ("iam", "--cluster-arn")])
def test_what_a_format_needs_beside_is_asked_for(form: str, missing: str) -> None:
    with pytest.raises(InputError) as refused:
        rendered(form, ROLES, TOPICS, {"bootstrap": "broker:9092"})
    assert missing in refused.value.hint


def test_the_lines_for_redis_hold_no_secret_and_only_keys_of_the_prefix() -> None:
    lines = [one for one in rendered("redis", ROLES, TOPICS, GIVEN).splitlines() if one.startswith("user ")]
    assert [line.split()[1] for line in lines] == ["desk-writer", "desk-reader"]
    assert all("~desk:*" in line and "#HASH_OF_" in line and "-@dangerous" in line for line in lines)
