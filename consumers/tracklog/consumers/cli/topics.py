"""`tracklog topics apply|verify|render`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.topics_elsewhere import strimzi, terraform
from tracklog.consumers.wiring import is_embedded, opened_log
from tracklog.infra import topic_admin
from tracklog.infra.settings import TopicSettings
from tracklog.infra.topic_admin import Finding
from tracklog.infra.wiring import registered_schemas, registry_of
from tracklog.schemas.errors import InputError

app = new_app(help="Create and check the topics.", no_args_is_help=True)


@command(app)
def apply(run: Run) -> None:
    """Create the topics that are missing, then check all of them. Alters nothing that exists.

    With a schema registry (registry.url) also registers the schemas of all events there, and sets their subjects to
    FULL_TRANSITIVE.

    \b
    Example:
      tracklog --log kafka://localhost:9092 topics apply
    """
    with opened_log(run.settings) as log:
        created, findings = topic_admin.apply(log, run.settings.topic_specs())
    for name in created:
        run.out.text(f"created {name}")
    if run.settings.registry.framing_used != "single-object":
        registry = registry_of(run.settings)
        registered = registry.register_all(registered_schemas(run.settings))
        run.out.text(f"{len(registered)} schemas are registered at {registry.url}")
    _tell(run, findings, created)


@command(app)
def verify(run: Run) -> None:
    """Compare the topics with what the guarantees need; prints wanted and found. Changes nothing.

    What is `required` breaks a guarantee, and is exit code 1; what is `advised` does not. What is `fixed by the
    provider` nobody can alter here.

    \b
    Example:
      tracklog topics verify --json
    """
    with opened_log(run.settings) as log:
        findings = topic_admin.verify(log, run.settings.topic_specs())
    _tell(run, findings, [])


class Format(StrEnum):
    STRIMZI = "strimzi"
    TERRAFORM = "terraform"


@command(app)
def render(
    run: Run,
    format: Annotated[Format, typer.Option(help="KafkaTopic objects, or resources of the Kafka provider.")],
    cluster: Annotated[
        str, typer.Option(metavar="NAME", help="With strimzi: the Kafka object that they belong to.")
    ] = "",
    namespace: Annotated[str, typer.Option(metavar="NAME", help="With strimzi: where that is.")] = "",
) -> None:
    """Print the topics as the settings want them, for whoever makes topics elsewhere. Needs no log.

    Both keep the topics when what describes them goes: deleting one would delete the record.

    \b
    Examples:
      tracklog topics render --format strimzi --cluster main --namespace kafka
      tracklog --set topics.partitions=24 topics render --format terraform
    """
    specs = run.settings.model_copy(update={"topics": _topics_on_kafka(run)}).topic_specs()
    if run.as_json:
        run.out.json([{**asdict(spec), "config": dict(spec.config)} for spec in specs])
    elif format is Format.TERRAFORM:
        run.out.text(terraform(specs))
    elif cluster:
        run.out.text(strimzi(specs, cluster, namespace))
    else:
        raise InputError("strimzi needs --cluster", hint="the name of the Kafka object: kubectl get kafka")


def _topics_on_kafka(run: Run) -> TopicSettings:
    """As they are where the log is a Kafka, whatever the log of this call is."""
    if not is_embedded(run.settings):
        return run.settings.topics
    return run.with_flags({"log": "kafka://rendered:9092"}).settings.topics


def _tell(run: Run, findings: Sequence[Finding], created: Sequence[str]) -> None:
    if any(finding.severity == "required" for finding in findings):
        run.faulty()
    if run.as_json:
        run.out.json({"created": created, "findings": [finding._asdict() for finding in findings]})
        return
    if not findings:
        names = ", ".join(run.settings.topic_names.all)
        run.out.text(f"{names}: as they should be")
        return
    columns = ("topic", "setting", "wanted", "found", "severity")
    run.out.table(columns, [(*finding[:4], finding.weight) for finding in findings], title="differences", wrap=True)
