"""Rights as the tools that grant them take them: Kafka's own, Strimzi, AWS IAM, and Redis. Pure; without secrets."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tracklog.infra.acls import Rule, rules_of
from tracklog.schemas.errors import InputError
from tracklog.schemas.topics import Topics

__all__ = ["FORMATS", "REDIS_ROLES", "rendered", "user_of"]

_ARN = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):kafka:(?P<where>[a-z0-9-]+:\d{12}):cluster/(?P<cluster>[^/]+/[^/]+)\Z"
)
_IAM: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("topic", "Read"): ("ReadData",),
    ("topic", "Write"): ("WriteData",),
    ("topic", "Describe"): ("DescribeTopic",),
    ("topic", "DescribeConfigs"): ("DescribeTopicDynamicConfiguration",),
    ("topic", "Create"): ("CreateTopic",),
    ("topic", "Alter"): ("AlterTopic",),
    ("topic", "AlterConfigs"): ("AlterTopicDynamicConfiguration",),
    ("topic", "Delete"): ("DeleteTopic", "WriteData"),
    ("group", "Read"): ("AlterGroup",),
    ("group", "Describe"): ("DescribeGroup",),
}
REDIS_ROLES: Final[Mapping[str, str]] = {
    "writer": "+@read +@write +@scripting +@connection +@transaction -@dangerous +info",
    "reader": "+@read +@connection -@dangerous +info",
}
"""Categories of commands. `writer`: whatever folds or keeps state (processors, router, dispatchers, workers);
`reader`: lists, totals and watching."""


def rendered(form: str, roles: Iterable[str], topics: Topics, options: Mapping[str, str]) -> str:
    """The text of one of FORMATS. `options`: `bootstrap` for kafka, `cluster` for strimzi, `arn` for iam.

    Raises InputError for an option that the format needs and does not have.
    """
    return FORMATS[form](list(roles), topics, options)


def user_of(topics: Topics, role: str) -> str:
    return f"{topics.prefix}-{role}"


def _kafka(roles: list[str], topics: Topics, options: Mapping[str, str]) -> str:
    start = ["kafka-acls.sh", "--bootstrap-server", options["bootstrap"], "--command-config", "admin.properties"]
    lines = ["# admin.properties: the client settings of somebody who may alter ACLs"]
    for role in roles:
        lines.append(f"# {role}")
        for rule in rules_of(role, topics):
            granted = [part for one in rule.operations for part in ("--operation", one)]
            kind = ["--resource-pattern-type", "prefixed"] if rule.prefixed else []
            principal = ["--add", "--allow-principal", f"User:{user_of(topics, role)}"]
            lines.append(shlex.join([*start, *principal, *granted, f"--{rule.resource}", rule.name, *kind]))
    return "\n".join(lines)


def _strimzi(roles: list[str], topics: Topics, options: Mapping[str, str]) -> str:
    if not options.get("cluster"):
        raise InputError("--format strimzi needs the name of the Kafka resource", hint="--cluster NAME")
    documents = []
    for role in roles:
        acls = [
            {
                "resource": {
                    "type": rule.resource,
                    "name": rule.name,
                    "patternType": "prefix" if rule.prefixed else "literal",
                },
                "operations": list(rule.operations),
                "host": "*",
            }
            for rule in rules_of(role, topics)
        ]
        documents.append(
            {
                "apiVersion": "kafka.strimzi.io/v1",
                "kind": "KafkaUser",
                "metadata": {
                    "name": re.sub(r"[^a-z0-9.-]", "-", user_of(topics, role)),
                    "labels": {"strimzi.io/cluster": options["cluster"]},
                },
                "spec": {
                    "authentication": {"type": "scram-sha-512"},
                    "authorization": {"type": "simple", "acls": acls},
                },
            }
        )
    return "\n---\n".join(json.dumps(document, indent=2) for document in documents)  # JSON is YAML


def _iam(roles: list[str], topics: Topics, options: Mapping[str, str]) -> str:
    arn = _ARN.match(options.get("arn", ""))
    if arn is None:
        raise InputError(
            "--format iam needs the address of the cluster",
            hint="--cluster-arn arn:aws:kafka:REGION:ACCOUNT:cluster/NAME/UUID",
        )
    policies = {user_of(topics, role): _policy(rules_of(role, topics), arn) for role in roles}
    return json.dumps(policies, indent=2)


def _policy(rules: tuple[Rule, ...], arn: re.Match[str]) -> dict[str, Any]:
    base = f"arn:{arn['partition']}:kafka:{arn['where']}"
    connect = ["Connect", "DescribeCluster"]
    if any("Write" in rule.operations for rule in rules):
        connect.append("WriteDataIdempotently")
    statements = [_statement(connect, arn.string)]
    for rule in rules:
        actions = [action for one in rule.operations for action in _IAM[rule.resource, one]]
        name = rule.name + ("*" if rule.prefixed else "")
        statements.append(_statement(actions, f"{base}:{rule.resource}/{arn['cluster']}/{name}"))
    return {"Version": "2012-10-17", "Statement": statements}


def _statement(actions: Iterable[str], resource: str) -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Action": [f"kafka-cluster:{action}" for action in dict.fromkeys(actions)],
        "Resource": resource,
    }


def _redis(roles: list[str], topics: Topics, options: Mapping[str, str]) -> str:
    lines = ["# the lines of an aclfile; put the SHA-256 of a password in place of HASH_OF_..."]
    for name, granted in REDIS_ROLES.items():
        user = user_of(topics, name)
        secret = f"#HASH_OF_{name.upper()}"
        lines.append(f"user {user} on {secret} ~{topics.prefix}:* resetchannels -@all {granted}")
    return "\n".join(lines)


FORMATS: Final[Mapping[str, Callable[[list[str], Topics, Mapping[str, str]], str]]] = {
    "kafka": _kafka,
    "strimzi": _strimzi,
    "iam": _iam,
    "redis": _redis,
}
