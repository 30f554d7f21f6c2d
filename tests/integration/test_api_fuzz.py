"""The API under requests made from its own description: whatever it is sent, it answers and does not fail."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from tests.integration.test_api import api
from tests.support.serving import Api, token

__all__ = ["api"]

EXAMPLES: Final = 25
"""For each operation, of requests that fit its description, and of others."""


@pytest.mark.faults  # a minute and more: in `make test-faults`
@pytest.mark.timeout(600)
async def test_no_request_makes_it_fail(api: Api) -> None:
    await api.held()
    headers = {"Authorization": f"Bearer {token('operator')}"}
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{api.port}/openapi.json")
    tried = failed = 0
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if operation.path.endswith(("/stream", "/readyz")):
            continue  # the one does not end, the other's 503 is an answer
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: schemathesis.Case[Any]) -> None:
                nonlocal tried, failed
                tried += 1
                answer = case.call(headers=headers)
                failed += answer.status_code >= 500
                assert answer.status_code < 500, (case.method, case.formatted_path, case.body, answer.text)

            with suppress(Unsatisfiable):  # nothing can be wrong with a request without parameters
                ask()
    assert tried > EXAMPLES * 10
    assert failed == 0
