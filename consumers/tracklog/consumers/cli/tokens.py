"""`tracklog tokens`"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tracklog.consumers.api.tokens import Role, hash_of, new_token
from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.infra.clock import SystemEntropy
from tracklog.schemas.errors import InputError

app = new_app()


@command(app)
def tokens(
    run: Run,
    person: Annotated[str, typer.Argument(metavar="PERSON", help="Who will have it: decisions say so.")],
    role: Annotated[list[Role], typer.Option("--role", help="What it is for.")],
    tenant: Annotated[list[str], typer.Option("--tenant", help="For whose trajectories; * for all.")],
    group: Annotated[
        list[str] | None, typer.Option("--group", help="A word that policies name, as in role:manager. Repeatable.")
    ] = None,
) -> None:
    """Make a bearer token for the API, and its entry for the tokens file. The token is shown once, here.

    \b
    Examples:
      tracklog tokens ada --role approver --tenant acme
      tracklog tokens mo --role approver --group manager --tenant acme
    """
    if not person or not all(tenant):
        raise InputError("a person or a tenant without a name", hint="name both")
    token = new_token(SystemEntropy())
    entry = {"person": person, "hash": hash_of(token), "roles": sorted(set(role)), "tenants": sorted(set(tenant))}
    entry |= {"groups": sorted(set(group))} if group else {}
    if run.as_json:
        run.out.json({"token": token, "entry": entry})
        return
    lines = [f"[{json.dumps(entry['hash'][7:19])}]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())]
    run.out.text(f"token, for {person} alone: {token}\n\nfor the tokens file:\n" + "\n".join(lines))
