"""One workflow with one step, by DBOS: `python -m benchmarks.peers.dbos_agent JOB`."""

from __future__ import annotations

from importlib import import_module

from benchmarks.peers.stopping import given
from tests.support.ledger import make_effect


def main() -> None:
    job, dbos = given(), import_module("dbos")
    made = dbos.DBOS
    made(
        config={
            "name": "peer",
            "system_database_url": job.database,
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )

    @made.step()  # type: ignore[untyped-decorator]
    def book() -> str:
        job.at("effect.start")
        receipt = make_effect(job.ledger_url, job.name, job.key)
        job.at("effect.end")
        return receipt

    @made.workflow()  # type: ignore[untyped-decorator]
    def run() -> str:
        job.at("before")
        receipt: str = book()
        job.at("after")
        return receipt

    made.launch()  # goes on with what the one before has begun
    if job.resumes:
        made.retrieve_workflow(job.name).get_result()
    else:
        with dbos.SetWorkflowID(job.name):
            made.start_workflow(run).get_result()
    made.destroy()


if __name__ == "__main__":
    main()
