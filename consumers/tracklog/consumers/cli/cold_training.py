"""`tracklog cold trajectories|training`"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.target_file import target_file
from tracklog.consumers.training.finished import NO_BEGINNING, SAMPLE, Finished, finished
from tracklog.consumers.training.rows import Form, Training, Unit
from tracklog.consumers.where import Where
from tracklog.consumers.wiring import blobs_of, check_topic, is_cold, opened_log
from tracklog.infra.settings import Settings
from tracklog.infra.settings_cold import ColdSettings
from tracklog.schemas.errors import InputError
from tracklog.schemas.redaction import Redaction

app = new_app(
    help="Read the cold tier: finished trajectories, and what models can be trained on.", no_args_is_help=True
)

WhereOption = Annotated[
    str | None,
    typer.Option("--where", metavar="CEL", help="Only those that match, e.g. 'reward == 1.0 && turns < 20'."),
]
OutputOption = Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write it to a file.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite the file.")]
Share = Annotated[float, typer.Option(min=0, max=1, help="The share of tasks that are for this.")]


@command(app)
def trajectories(
    run: Run,
    where: WhereOption = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="ADDRESS", help="Keep them in the Delta table `trajectories` there instead."),
    ] = None,
    output: OutputOption = None,
    force: ForceOption = False,
) -> None:
    """One row for each finished trajectory: task, agent, models, turns, spend, outcome, reward, verified or not.

    As JSON lines, from the cold tier of cold.url (or of --log cold:ADDRESS). `models` has a stretch for each crossing
    of versions. With --to they are kept in a table, one row each: only those are read of which something was added
    since the last time, and their rows are replaced.

    \b
    Examples:
      tracklog cold trajectories --output runs.jsonl
      tracklog cold trajectories --to .tracklog/cold
      tracklog cold trajectories --where 'agent == "airline" && !verified'
    """
    if to is not None:
        if where is not None or output is not None:
            raise InputError("--to keeps all of them in a table", hint="leave --where and --output out")
        _keep(run, to)
        return
    wanted, left_out, unverified = _where(where), Counter[str](), 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal unverified
        for one, row in _finished(run, left_out):
            unverified += not one.report.sound
            if _matches(wanted, row):
                yield row

    with _target(output, force=force) as file:
        count = _write(file, rows())
    run.out.note(f"{count} trajectories")
    _tell_doubted(run, unverified, left_out)


@command(app)
def training(
    run: Run,
    unit: Annotated[Unit, typer.Option(help="A row for each call of a model, or for each trajectory.")] = Unit.CALL,
    form: Annotated[Form, typer.Option("--format", help="The form of the messages.")] = Form.OPENAI,
    where: WhereOption = None,
    valid: Share = 0.0,
    test: Share = 0.0,
    allow_compacted: Annotated[
        bool, typer.Option("--allow-compacted", help="With --unit trajectory: those whose context lost messages too.")
    ] = False,
    redact_field: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Take out the values of fields of this name; repeatable.")
    ] = None,
    keep_secrets: Annotated[bool, typer.Option("--keep-secrets", help="Do not look for keys and tokens.")] = False,
    output: OutputOption = None,
    force: ForceOption = False,
) -> None:
    """What models can be trained on, as JSON lines: messages and tools exactly as the model saw them, and its reply.

    Only of finished trajectories without a fault, and only contexts whose hash, made anew from the messages and tools,
    is the recorded one; what is left out is counted by why. Each row has its provenance: trajectory, turn, kind
    (run, fork, import...), hashes, place in the log, and the part of the split that its task is in.

    \b
    Examples:
      tracklog cold training --where 'reward == 1.0' --test 0.1 --output train.jsonl
      tracklog cold training --unit trajectory --format hf
    """
    if valid + test > 1:
        raise InputError(f"--valid {valid:g} and --test {test:g} are more than everything", hint="together at most 1")
    wanted = _where(where)
    policy = run.settings.redaction
    fields, patterns = (*policy.fields, *(redact_field or ())), {} if keep_secrets else policy.compiled
    redaction = Redaction(fields, secrets=not keep_secrets, patterns=patterns) if fields or not keep_secrets else None
    maker = Training(unit, form, valid=valid, test=test, compacted=allow_compacted, redaction=redaction)
    with _target(output, force=force) as file:
        found = _finished(run, maker.left_out)
        chosen = (one for one, row in found if not one.report.sound or _matches(wanted, row))  # a fault is counted
        count = _write(file, (row for one in chosen for row in maker.rows(one)))
    run.out.note(f"{count} rows")
    _tell_left_out(run, maker.left_out)
    for what, many in sorted(redaction.counts.items() if redaction is not None else ()):
        run.out.note(f"taken out: {many} times {what}")


def _keep(run: Run, address: str) -> None:
    from tracklog.consumers.export.running import cold_blobs_of, identity_of
    from tracklog.consumers.training.curated import curate
    from tracklog.infra.cold.curated import TRAJECTORIES_TABLE
    from tracklog.infra.cold.table import ColdTable

    settings = _cold(run.settings)
    where = ColdSettings(url=address).url
    where = where if "://" in where else str(Path(where).absolute())
    options, timeout_s = settings.cold.store_options(), settings.cold.timeout_s
    with opened_log(settings) as log:
        check_topic(log, settings)
        identity = identity_of(log, settings)
        table = ColdTable.create_if_missing(where, options, identity, kind=TRAJECTORIES_TABLE, timeout_s=timeout_s)
        blobs = blobs_of(settings).or_else(cold_blobs_of(settings))
        redaction = settings.redaction.before_export()
        with run.out.progress("reading what is new", None) as advance:
            found = curate(log, settings.topic_names.events, blobs, table, redaction=redaction, progress=advance)
    if run.as_json:
        run.out.json({"table": table.uri, **found._asdict()})
    else:
        run.out.text(f"{found.changed} trajectories with something new, {found.rows} of them are over: {table.uri}")
    _tell_doubted(run, found.unverified, Counter({NO_BEGINNING: found.left_out} if found.left_out else {}))


def _where(text: str | None) -> Where | None:
    return None if text is None else Where(text, SAMPLE)


def _matches(wanted: Where | None, row: dict[str, Any]) -> bool:
    return wanted is None or wanted.matches({name: value for name, value in row.items() if value is not None})


def _tell_doubted(run: Run, unverified: int, left_out: Counter[str]) -> None:
    """Whatever was asked for: a run that somebody has altered may match no condition any more."""
    if unverified:
        run.out.warning(
            f"{unverified} finished trajectories are not verified (`verified` is false, `faults` says why): see"
            " tracklog cold verify"
        )
    _tell_left_out(run, left_out)


def _tell_left_out(run: Run, left_out: Counter[str]) -> None:
    for why, many in sorted(left_out.items()):
        run.out.warning(f"left out: {many} times {why}")


def _finished(run: Run, left_out: Counter[str]) -> Iterator[tuple[Finished, dict[str, Any]]]:
    from tracklog.consumers.export.running import cold_blobs_of  # which needs deltalake

    settings = _cold(run.settings)
    topic = settings.topic_names.events
    with opened_log(settings) as log:
        check_topic(log, settings)
        blobs = blobs_of(settings).or_else(cold_blobs_of(settings))
        for one in finished(log, topic, blobs, left_out=left_out):
            yield one, one.row()


def _cold(settings: Settings) -> Settings:
    """That of the cold tier: who wants the log instead exports first."""
    if is_cold(settings):
        return settings
    return settings.model_copy(update={"log": settings.log.model_copy(update={"url": "cold:"})})


@contextmanager
def _target(output: Path | None, *, force: bool) -> Iterator[IO[bytes]]:
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with target_file(output, force=force) as file:
        yield file


def _write(file: IO[bytes], rows: Iterable[dict[str, Any]]) -> int:
    count = 0
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        count += 1
    return count
