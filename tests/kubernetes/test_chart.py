"""What the chart makes of values: every pod hardened, every secret a file, a hook that needs nothing of its release."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.charts import (
    EXAMPLES,
    Object,
    container,
    environment,
    example,
    name_of,
    named,
    of_kind,
    over,
    pod_of,
    rendered,
)
from tracklog.infra.acls import rules_of
from tracklog.infra.settings import Settings, load_settings
from tracklog.schemas.topics import Topics

SECRET_WORDS = re.compile(r"password|secret_access|access_key|\.pem|private", re.IGNORECASE)
FLEETS: dict[str, Any] = {
    "agents": [
        {"name": "travel", "image": "agents:1", "modules": ["travel:booker"]},
        {"name": "claims", "image": "agents:2", "modules": ["claims:clerk"], "terminationGracePeriodSeconds": 600},
    ],
    "tools": [{"name": "bank", "image": "bank:1", "modules": ["bank.tools"], "replicas": 3}],
    "extraProcessors": [
        {"name": "spend", "image": "spend:1"},
        {"name": "failures", "image": "views:1", "module": "views:Failures"},
    ],
}


def workloads(objects: list[Object]) -> list[Object]:
    return [one for one in objects if one["kind"] in ("Deployment", "Job", "Pod")]


def settings_of(workload: Object, tmp_path: Path, secrets: Path) -> Settings:
    """As the product reads what the pod carries; each Secret's files hold some word."""
    for source in next(one for one in pod_of(workload)["volumes"] if one["name"] == "secrets")["projected"]["sources"]:
        for item in source["secret"]["items"]:
            word = "redis://:word@redis:6379" if item["path"] == "redis" else "word"
            (secrets / item["path"]).write_text(word, encoding="utf-8")
    environ = {**environment(workload), "TRACKLOG_SECRETS": str(secrets)}
    return load_settings(environ=environ, cwd=tmp_path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_product_understands_what_every_pod_carries(name: str, tmp_path: Path) -> None:
    for number, workload in enumerate(workloads(rendered(example(name)))):
        secrets = tmp_path / str(number)
        secrets.mkdir()

        settings = settings_of(workload, tmp_path, secrets)

        assert settings.log.url.startswith("kafka://"), name_of(workload)
        assert settings.home == "/var/lib/tracklog"
        assert (settings.kafka.client_options().get("sasl.password") == "word") == (
            "sasl.mechanism" in settings.kafka.client_options() and not settings.log.oauth_token
        )


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_pod_is_hardened(name: str) -> None:
    for workload in workloads(rendered(example(name))):
        pod, own = pod_of(workload), container(workload)

        assert pod["automountServiceAccountToken"] is False, name_of(workload)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert own["securityContext"]["readOnlyRootFilesystem"] is True
        assert own["securityContext"]["allowPrivilegeEscalation"] is False
        assert own["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= own["resources"]["requests"].keys()
        assert "memory" in own["resources"]["limits"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_secrets_are_files_and_nothing_else(name: str) -> None:
    objects = rendered(example(name))

    for workload in workloads(objects):
        own = container(workload)
        shown = {
            one["name"]
            for one in own["env"]
            if SECRET_WORDS.search(one["name"]) and not one["name"].endswith(("_LOCATION", "_FILE"))
        }
        assert shown == set(), name_of(workload)
        assert not any(SECRET_WORDS.search(word) for word in (*own["command"], *own["args"]))
        assert not any("valueFrom" in one for one in own["env"])
    assert of_kind(objects, "Secret") == []
    assert all("dashboard" in name_of(one) for one in of_kind(objects, "ConfigMap"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_hooks_need_nothing_of_their_release(name: str) -> None:
    objects = rendered(example(name))
    hooks = [one for one in objects if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    own = {(one["kind"], name_of(one)) for one in objects if one not in hooks}

    for job in of_kind(hooks, "Job"):
        pod = pod_of(job)
        assert ("ServiceAccount", pod["serviceAccountName"]) in {(one["kind"], name_of(one)) for one in hooks}
        needs = {("Secret", one["secret"]["secretName"]) for one in pod["volumes"] if "secret" in one}
        needs |= {("ConfigMap", one["configMap"]["name"]) for one in pod["volumes"] if "configMap" in one}
        assert needs & own == set()
        assert "envFrom" not in container(job)
    at = {
        " ".join(container(one)["args"][:2]): one["metadata"]["annotations"]["helm.sh/hook"]
        for one in of_kind(hooks, "Job")
    }
    assert at.pop("schemas check") == "pre-upgrade,pre-rollback"
    managed = example(name).get("topics", {}).get("manage", "job") == "job"
    assert at == ({"topics apply": "pre-install,pre-upgrade"} if managed else {})


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_pod_that_stands_is_probed_by_progress_on_a_port_it_has(name: str) -> None:
    for workload in of_kind(rendered(example(name)), "Deployment"):
        own = container(workload)
        ports = {one["name"]: one["containerPort"] for one in own["ports"]}

        paths = {kind: own[kind]["httpGet"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")}

        assert {one["port"] for one in paths.values()} == {"health"}
        assert paths["livenessProbe"]["path"] == "/healthz", "a broker that is away restarts nothing"
        assert paths["readinessProbe"]["path"] == "/readyz"
        assert environment(workload)["TRACKLOG_HEALTH__LISTEN"] == f"0.0.0.0:{ports['health']}"


def test_a_budget_is_made_only_where_more_than_one_pod_is_sure_to_run() -> None:
    values = over(example("minimal"), components__route__replicas=1)

    budgets = of_kind(rendered(values), "PodDisruptionBudget")

    assert [name_of(one) for one in budgets] == ["demo-tracklog-processors"]


def test_what_is_scaled_automatically_has_no_replicas_and_one_scaler() -> None:
    objects = rendered(example("strimzi"))

    scaled = {
        name_of(one): one["kind"] for one in objects if one["kind"] in ("HorizontalPodAutoscaler", "ScaledObject")
    }
    assert scaled == {
        "demo-tracklog-agents-travel": "ScaledObject",
        "demo-tracklog-processors": "HorizontalPodAutoscaler",
    }
    without = {name_of(one) for one in of_kind(objects, "Deployment") if "replicas" not in one["spec"]}
    assert without == scaled.keys()


def test_fleets_are_workloads_of_their_own_groups_and_leave_each_others_tasks_alone() -> None:
    objects = rendered(over(example("minimal"), **FLEETS))

    travel, claims = (named(objects, "Deployment", name) for name in ("agents-travel", "agents-claims"))
    assert container(travel)["args"] == ["worker", "travel:booker"]
    assert environment(travel)["TRACKLOG_WORKER__GROUP"] == "workers-travel"
    assert environment(travel)["TRACKLOG_WORKER__REFUSE_UNKNOWN"] == "false"
    assert environment(travel)["TRACKLOG_WORKER__DISPATCHES"] == "true"
    assert environment(claims)["TRACKLOG_WORKER__MOVE_WAIT_S"] == "585"
    bank = named(objects, "Deployment", "tools-bank")
    assert (container(bank)["args"], container(bank)["image"]) == (["dispatch", "bank.tools"], "bank:1")
    assert bank["spec"]["replicas"] == 3
    spend, failures = (named(objects, "Deployment", f"processor-{name}") for name in ("spend", "failures"))
    assert container(spend)["args"] == ["process", "spend"]
    assert container(failures)["args"] == ["process", "failures", "--load", "views:Failures"]


def test_one_fleet_alone_answers_for_agents_that_it_does_not_have() -> None:
    values = over(example("minimal"), components__worker__modules=["travel:booker"])

    worker = named(rendered(values), "Deployment", "-worker")

    assert "TRACKLOG_WORKER__REFUSE_UNKNOWN" not in environment(worker)
    assert environment(worker)["TRACKLOG_WORKER__DISPATCHES"] == "false"


def test_only_dispatchers_reach_what_tools_reach() -> None:
    objects = of_kind(rendered(example("strimzi")), "NetworkPolicy")
    reaching = [one for one in objects if "10.20.0.0/16" in str(one["spec"].get("egress"))]

    assert [one["spec"]["podSelector"]["matchLabels"]["tracklog/role"] for one in reaching] == ["dispatch"]


def test_ports_of_kafka_and_redis_come_from_their_addresses() -> None:
    values = over(
        example("minimal"), kafka__bootstrapServers="a:9094,b:9095,c:9094", redis__url="rediss+cluster://r:7000/0?x=1"
    )

    base = next(one for one in of_kind(rendered(values), "NetworkPolicy") if name_of(one) == "demo-tracklog")

    ports = [[port["port"] for port in rule["ports"]] for rule in base["spec"]["egress"]]
    assert ports == [[53, 53], [9094, 9095], [7000], [443]]


def test_topics_and_users_of_strimzi_outlive_the_release() -> None:
    objects = rendered(example("strimzi"))
    kept = {name_of(one) for one in objects if one["metadata"].get("annotations", {}).get("helm.sh/resource-policy")}

    strimzi = {name_of(one) for kind in ("KafkaTopic", "KafkaUser") for one in of_kind(objects, kind)}
    assert kept == strimzi
    assert "demo-tracklog-dispatch" in kept


ROLES_OF = {
    "worker": ("owner",),
    "dispatch": ("dispatcher",),
    "processors": ("processor",),
    "faust": ("processor",),
    "route": ("router",),
    "api": ("api", "owner"),
    "export": ("exporter",),
}
"""The workloads' rights by the roles of `tracklog acls`; clients record through the API."""


def test_users_may_write_what_their_roles_may_and_nothing_else() -> None:
    users = of_kind(rendered(example("strimzi")), "KafkaUser")
    topics = Topics()
    found = {}
    for user in users:
        rules = user["spec"]["authorization"]["acls"]
        written = {rule["resource"]["name"] for rule in rules if "Write" in rule["operations"]}
        found[name_of(user).removeprefix("demo-tracklog-")] = written
    assert len(found) >= 5
    assert found == {
        role: {rule.name for one in ROLES_OF[role] for rule in rules_of(one, topics) if "Write" in rule.operations}
        for role in found
    }


def test_large_numbers_stay_numbers() -> None:
    values = over(example("minimal"), settings={"processors.state_bytes_max": 10485760, "loop.batch_wait_s": 0.05})

    route = environment(named(rendered(values), "Deployment", "-route"))

    assert route["TRACKLOG_PROCESSORS__STATE_BYTES_MAX"] == "10485760"
    assert route["TRACKLOG_LOOP__BATCH_WAIT_S"] == "0.05"


def test_a_digest_counts_more_than_a_tag() -> None:
    image = container(named(rendered(example("air-gapped")), "Deployment", "-route"))["image"]

    assert image.partition("@")[2].startswith("sha256:")


def test_alerts_carry_the_values_that_were_asked_for() -> None:
    values = over(example("strimzi"), monitoring__prometheusRule__values={"lagSeconds": 300, "inDoubtFor": "30s"})
    (rule,) = of_kind(rendered(values), "PrometheusRule")
    alerts = {one["alert"]: one for one in rule["spec"]["groups"][0]["rules"]}
    assert alerts["TracklogLagTime"]["expr"].endswith("> 300")
    assert alerts["TracklogLagTime"]["for"] == "5m"
    assert alerts["TracklogCallsInDoubt"]["for"] == "30s"
    assert alerts["TracklogCallsInDoubt"]["annotations"]["summary"].startswith("{{ $value }}")
    assert "${" not in str(rule)
