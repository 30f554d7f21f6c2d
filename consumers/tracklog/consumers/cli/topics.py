"""`tracklog topics apply|verify`"""

from __future__ import annotations

from collections.abc import Sequence

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.wiring import opened_log
from tracklog.infra import topic_admin
from tracklog.infra.topic_admin import Finding

app = new_app(help="Create and check the topics.", no_args_is_help=True)


@command(app)
def apply(run: Run) -> None:
    """Create the topics that are missing, then check all of them. Alters nothing that exists.

    \b
    Example:
      tracklog --log kafka://localhost:9092 topics apply
    """
    with opened_log(run.settings) as log:
        created, findings = topic_admin.apply(log, run.settings.topic_specs())
    for name in created:
        run.out.text(f"created {name}")
    _tell(run, findings, created)


@command(app)
def verify(run: Run) -> None:
    """Compare the topics with what the guarantees need; prints wanted and found. Changes nothing.

    \b
    Example:
      tracklog topics verify --json
    """
    with opened_log(run.settings) as log:
        findings = topic_admin.verify(log, run.settings.topic_specs())
    _tell(run, findings, [])


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
    run.out.table(columns, [tuple(finding) for finding in findings], title="differences", wrap=True)
