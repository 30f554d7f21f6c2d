"""`tracklog acls`"""

from __future__ import annotations

from typing import Annotated

import typer

from tracklog.consumers.acl_formats import FORMATS, rendered, user_of
from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.infra.acls import ROLES, rules_of
from tracklog.schemas.errors import InputError

KAFKA = "kafka://"

app = new_app()


@command(app)
def acls(
    run: Run,
    form: Annotated[
        str, typer.Option("--format", metavar="|".join(FORMATS), help="What is to take the rules.")
    ] = "kafka",
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE", help=f"One of {', '.join(ROLES)}; again for more. All by default."),
    ] = None,
    cluster: Annotated[str, typer.Option(metavar="NAME", help="strimzi: the Kafka resource the users belong to.")] = "",
    cluster_arn: Annotated[str, typer.Option(metavar="ARN", help="iam: the address of the MSK cluster.")] = "",
) -> None:
    """Print the rights that each role needs on topics and groups (or on Redis), and nothing more. Asks nobody.

    Users are named PREFIX-ROLE. Owners are workers, programs in library mode, importers, and an API through which
    clients record. What each role may do: docs/security.md.

    \b
    Examples:
      tracklog acls --log kafka://broker:9092 > grant.sh
      tracklog acls --format strimzi --cluster my-kafka --role dispatcher
      tracklog acls --format redis
    """
    if form not in FORMATS:
        raise InputError(f"unknown format {form!r}", hint=f"one of {', '.join(FORMATS)}")
    unknown = [one for one in role or () if one not in ROLES]
    if unknown:
        raise InputError(f"unknown role {unknown[0]!r}", hint=f"one of {', '.join(ROLES)}")
    roles, topics = role or list(ROLES), run.settings.topic_names
    if run.as_json:
        run.out.json(
            {
                "users": {
                    one: {"user": user_of(topics, one), "rules": [rule._asdict() for rule in rules_of(one, topics)]}
                    for one in roles
                }
            }
        )
        return
    url = run.settings.log.url
    bootstrap = url.removeprefix(KAFKA) if url.startswith(KAFKA) else "BROKER:9092"
    run.out.text(rendered(form, roles, topics, {"bootstrap": bootstrap, "cluster": cluster, "arn": cluster_arn}))
