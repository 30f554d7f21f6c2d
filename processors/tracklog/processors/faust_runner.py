"""Processors in a Faust app: its agents, web view and command line, with the guarantees of the native runner.

    run = FaustRun(work, log, settings)
    app = run.app                          # faust -A MODULE worker, or: await run_on_faust(run, stop)

The app's agent hands batches to a partition loop on a thread of its own; what is stored, where it goes on and what a
conflict means is decided there. Faust's commits are hints. It costs much speed: see benchmarks/RESULTS.md.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from typing import Any, Final

from tracklog.infra.log.port import GroupListener, GroupMember, Log, Record
from tracklog.infra.settings_sections import Settings
from tracklog.processors.faust_member import BATCHES_MAX, FaustMember, Owned
from tracklog.processors.running import Processes
from tracklog.schemas.errors import LogUnavailable, SettingsError

__all__ = ["FaustRun", "brokers_of", "run_on_faust"]

TAKE_MAX: Final = 1000
"""Records an agent hands over at once."""
TAKE_S: Final = 0.05
OFFER_S: Final = 0.5
"""How long one try to hand over waits, before it is looked whether the loop has ended."""


class FaustRun:
    """A Faust app and the loop that it feeds. `app` is an ordinary `faust.App`: more agents and pages may be added.

    Raises SettingsError where Faust cannot reach the log as it is set.
    """

    def __init__(self, work: Processes, log: Log, settings: Settings, *, web_port: int | None = None) -> None:
        self._work = work
        self._log = log
        self._stop = threading.Event()
        self._offers: queue.Queue[Owned | Sequence[Record]] = queue.Queue(BATCHES_MAX)
        self._failed: BaseException | None = None
        self.positions: dict[int, int] = {}
        self._thread = threading.Thread(target=self._own, name="tracklog-faust", daemon=True)
        self.app = self._made(settings, web_port)

    def _made(self, settings: Settings, web_port: int | None) -> Any:
        import faust

        topic_name = settings.topic_names.events
        web: dict[str, Any] = {} if web_port is None else {"web_port": web_port, "web_bind": "127.0.0.1"}
        app: Any = faust.App(
            self._work.group,
            broker=brokers_of(self._log.url, settings),
            store="memory://",
            topic_allow_declare=False,
            topic_disable_leader=True,
            consumer_auto_offset_reset="latest",
            web_enabled=web_port is not None,
            **web,
        )
        topic = app.topic(topic_name, key_serializer="raw", value_serializer="raw")

        async def hand_over(stream: Any) -> None:
            async for events in stream.take_events(TAKE_MAX, within=TAKE_S):
                await self._offer([_record(event.message) for event in events])

        async def assigned(_: Any, partitions: Any, **__: Any) -> None:
            await self._offer(Owned(frozenset(one.partition for one in partitions if one.topic == topic_name)))

        async def started(_: Any, **__: Any) -> None:
            self._thread.start()

        async def stopped(_: Any, **__: Any) -> None:
            self._stop.set()
            await asyncio.to_thread(self._thread.join)

        async def positions(view: Any, _: Any) -> Any:
            return view.json({str(partition): offset for partition, offset in self.positions.items()})

        app.agent(topic, name="tracklog-processors")(hand_over)
        app.on_partitions_assigned.connect(assigned, weak=False)
        app.on_before_shutdown.connect(stopped, weak=False)
        app.page("/tracklog/positions/")(positions)
        app.task(started)
        return app

    async def _offer(self, offer: Owned | Sequence[Record]) -> None:
        """Waits until the loop takes it: Faust reads no further meanwhile. Raises what ended the loop."""
        while not self._stop.is_set():
            if self._failed is not None:
                raise self._failed
            try:
                await asyncio.to_thread(self._offers.put, offer, timeout=OFFER_S)
            except queue.Full:
                continue
            return

    def _own(self) -> None:
        self.positions = self._work.loop.positions
        try:
            self._work.loop.run(self._work.group, self._stop, self._join)
        except BaseException as error:  # noqa: BLE001 - raised in the app by the next batch, and at the end
            self._failed = error

    def _join(self, _group: str, topic: str, listener: GroupListener) -> GroupMember:
        return FaustMember(self._log, topic, listener, self._offers)

    def raise_failure(self) -> None:
        """Raises what ended the loop, if anything did."""
        if self._failed is not None:
            raise self._failed


async def run_on_faust(run: FaustRun, stop: asyncio.Event) -> None:
    """Runs the app in this event loop until `stop` is set. Raises what ended the loop."""
    await run.app.start()
    try:
        while not stop.is_set():
            run.raise_failure()
            if run.app.crashed:
                raise LogUnavailable(f"the Faust app has ended: {run.app.crash_reason!r}", hint="its log says why")
            try:
                await asyncio.wait_for(stop.wait(), OFFER_S)
            except TimeoutError:
                continue
    finally:
        await run.app.stop()
    run.raise_failure()


def brokers_of(url: str, settings: Settings) -> str:
    """The log's address as Faust writes it. Raises SettingsError where Faust cannot reach it."""
    if not url.startswith("kafka://"):
        raise SettingsError("the Faust runner reads from Kafka", hint="use --runner native, or --log kafka://HOST:PORT")
    security = [name for name in settings.kafka.options if name.startswith(("security.", "sasl.", "ssl."))]
    if security:
        raise SettingsError(
            f"the Faust runner does not take [kafka] {', '.join(sorted(security))}",
            hint="it speaks to brokers in plain text; use --runner native, or build the app yourself",
        )
    return ";".join(f"kafka://{address}" for address in url.removeprefix("kafka://").split(","))


def _record(message: Any) -> Record:
    headers = message.headers.items() if isinstance(message.headers, dict) else message.headers or ()
    return Record(
        message.topic,
        message.partition,
        message.offset,
        round(message.timestamp * 1000),
        message.key,
        message.value,
        tuple((name, value) for name, value in headers),
    )
