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
from tests.integration.test_api_routes import CALLS
from tests.support.recording import RUN, start
from tests.support.serving import Api, token
from tracklog.consumers.verify import Verification
from tracklog.schemas.topics import Topics

__all__ = ["api"]

EXAMPLES: Final = 25
"""For each operation, of requests that fit its description, and of others."""


@pytest.mark.faults  # a minute and more: in `make test-faults`
@pytest.mark.timeout(600)
async def test_no_request_makes_it_fail(api: Api) -> None:
    await api.held()
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{api.port}/openapi.json")
    tried = failed = 0
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if operation.path.endswith(("/stream", "/tokens", "/readyz")):
            continue  # streams do not end, the other's 503 is an answer
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: schemathesis.Case[Any]) -> None:
                nonlocal tried, failed
                tried += 1
                answer = case.call(headers=_of_role(case))
                failed += answer.status_code >= 500
                assert answer.status_code < 500, (case.method, case.formatted_path, case.body, answer.text)

            with suppress(Unsatisfiable):  # nothing can be wrong with a request without parameters
                ask()
    assert tried > EXAMPLES * 10
    assert failed == 0


def _of_role(case: schemathesis.Case[Any]) -> dict[str, str]:
    """The token of somebody who may do that."""
    asked = CALLS[(case.operation.method.upper(), case.operation.path)]
    return {"Authorization": f"Bearer {token(asked.role or 'viewer')}"}


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
async def test_no_events_that_a_client_sends_make_it_fail(api: Api, mode: GenerationMode) -> None:
    # given a trajectory that its client records, and whatever the description allows as the next events of it
    assert api.ask("POST", "/trajectories", start(), "recorder")[0] == 201
    headers = {"Authorization": f"Bearer {token('recorder')}"}
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{api.port}/openapi.json")
    operation = schema["/trajectories/{trajectory_id}/events"]["POST"]
    following, taken = 1, 0

    @settings(max_examples=EXAMPLES * 8, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case[Any]) -> None:
        nonlocal following, taken
        case.path_parameters = {"trajectory_id": RUN}
        if isinstance(case.body, dict):
            case.body.update(client="ts", first=following, barrier=None, lease_s=None)
        answer = case.call(headers=headers)
        assert answer.status_code < 500, (case.body, answer.text)
        if answer.status_code == 200:
            following, taken = answer.json()["next"], taken + 1

    ask()
    assert taken > 0 or mode is GenerationMode.NEGATIVE
    # then what was taken is sound
    (report,) = Verification(api.world.new_log(), Topics().events, only=RUN).reports()
    assert report.sound, report
