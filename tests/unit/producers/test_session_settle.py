"""The table of settlement is complete, and opposite mistakes are left out of it."""

from __future__ import annotations

import pytest

from tracklog.producers.settle import WAYS, Standing, Way, due_us
from tracklog.schemas.events import ToolIntent
from tracklog.schemas.values import Body, Effect, Place

GRACE_US = 70_000_000


def standing(effect: Effect, not_after: int = 1_000_000, key_ttl_ms: int | None = None) -> Standing:
    intent = ToolIntent(
        call_id="c1",
        tool="book",
        arguments=Body.of("{}"),
        effect=effect,
        idempotency_key="key",
        key_ttl_ms=key_ttl_ms,
        not_after=not_after,
        place=Place.INLINE,
    )
    return Standing(intent, "{}", seq=1, turn=1, appended_us=500_000)


def test_every_class_has_its_ways() -> None:
    assert set(WAYS) == set(Effect)


@pytest.mark.parametrize("effect", [Effect.PROBE, Effect.OPAQUE])
def test_what_cannot_be_repeated_is_never_sent_again(effect: Effect) -> None:
    assert not {Way.RERUN, Way.REISSUE} & set(WAYS[effect])


@pytest.mark.parametrize("effect", [Effect.IDEMPOTENT, Effect.PROBE, Effect.OPAQUE])
def test_what_has_an_effect_ends_with_a_person(effect: Effect) -> None:
    assert WAYS[effect][-1] is Way.ASK


def test_an_effect_may_land_until_the_grace_is_over() -> None:
    assert due_us(standing(Effect.OPAQUE), GRACE_US) == 1_000_000 + GRACE_US


def test_an_idempotent_call_is_not_settled_otherwise_before_its_key_is_surely_forgotten() -> None:
    call = standing(Effect.IDEMPOTENT, key_ttl_ms=86_400_000)
    assert due_us(call, GRACE_US) == 500_000 + 86_400_000_000 + GRACE_US
