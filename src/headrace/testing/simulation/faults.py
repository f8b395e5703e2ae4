"""What goes wrong, and who puts it right again.

The operator starts the broker again whenever it has died, and replaces it when its disk has failed. A death
comes at a moment, or in the middle of the next steps that the disk is asked for; it is a kill, which leaves
the page cache, or a loss of power, which takes along whatever was not synced.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from headrace.errors import StorageError
from headrace.testing.disk import PowerLoss

if TYPE_CHECKING:
    from random import Random

    from headrace.testing.disk import SimulatedDisk
    from headrace.testing.simulation.broker import SimulatedBroker
    from headrace.testing.simulation.client import World
    from headrace.testing.simulation.network import Link

DISK_FAULTS: Final = (
    ("append", errno.ENOSPC),
    ("append", errno.EIO),
    ("sync_file", errno.EIO),
    ("sync_directory", errno.EIO),
    ("rename", errno.EIO),
    ("read", errno.EIO),
    ("open", errno.EMFILE),
)
STEPS_MAX: Final = 30
NEXT_DEATH_S_MAX: Final = 0.3
DOWN_S_MAX: Final = 1.0
STOP_WAIT_S: Final = 0.001
STALL_S_MAX: Final = 9.0
JUMP_S_MAX: Final = 5.0
CLOCK_JUMP_MS_MAX: Final = 40 * 86_400_000


class Faults:
    """Breaks things, one after the other."""

    def __init__(
        self,
        world: World,
        disk: SimulatedDisk,
        broker: SimulatedBroker,
        random: Random,
        *,
        may_lose_power: bool,
    ) -> None:
        self._loop = world.loop
        self._clock = world.clock
        self._network = world.network
        self._trace = world.trace
        self._disk = disk
        self._broker = broker
        self._random = random
        self._may_lose_power = may_lose_power
        self._loses_power = False
        self._next_deaths: list[str] = []
        self._behind_ms_max = 0
        """How far the clock has been behind the true time."""
        self.was_clock_believed = False
        """Whether a clock may have been believed that was ahead of the true time, or of an earlier time."""
        self.is_over = False
        broker.on_death = self._on_death

    async def run(self, *, count: int, pause_s_max: float) -> None:
        """Break so many things, with pauses between."""
        faults = (
            self._die,
            self._die_in_the_middle,
            self._die_in_the_middle,
            self._stop,
            self._cut,
            self._cut,
            self._stall,
            self._fail_disk,
            self._fail_sync_and_lose_power,
            self._jump,
        )
        for _ in range(count):
            await self._loop.sleep(self._random.uniform(0, pause_s_max))
            self._random.choice(faults)()
        await self._loop.sleep(self._random.uniform(0, pause_s_max))
        self.is_over = True
        self._disk.heal()
        if self._broker.has_failed:
            self._end_life()

    async def operate(self) -> None:
        """Start the broker whenever it is down, and replace one whose disk has failed."""
        while True:
            if self._broker.has_failed:
                await self._loop.sleep(self._random.uniform(0, DOWN_S_MAX))
                self._end_life()
            if not self._broker.is_alive:
                await self._loop.sleep(self._random.uniform(0, DOWN_S_MAX))
                self._start()
            await self._loop.sleep(0.05)

    def _start(self) -> None:
        if not self.is_over and self._random.random() < 0.15:
            self._arm()
        try:
            self._broker.start()
            # It has nothing to compare its clock with, and takes what was written when the clock was further
            # behind for older than it is.
            self.was_clock_believed |= self._clock.jumped_ms > -self._behind_ms_max
            self._trace("the broker has started")
            if self._next_deaths and not self.is_over:
                self._loop.call_later(self._random.uniform(0, NEXT_DEATH_S_MAX), self._end_life)
        except PowerLoss:
            self._broker.die()
        except StorageError as error:
            self._trace(f"the broker could not start: {error}")
            if self.is_over:
                raise
            self._broker.die()

    def _on_death(self) -> None:
        self._trace("the power goes" if self._loses_power else "the broker is killed")
        if self._loses_power:
            self._disk.crash(self._random)
        else:
            self._disk.kill()
        self._loses_power = False
        self._network.broker_died()

    def _choose_death(self) -> None:
        if self._next_deaths:
            self._loses_power = self._next_deaths.pop(0) == "power"
        else:
            self._loses_power = self._may_lose_power and self._random.random() < 0.5

    def _end_life(self) -> None:
        if self._broker.is_alive:
            self._choose_death()
            self._broker.die()

    def _die(self) -> None:
        self._end_life()

    def _arm(self) -> None:
        self._choose_death()
        self._disk.lose_power_after(self._random.randint(0, STEPS_MAX))

    def _die_in_the_middle(self) -> None:
        if self._broker.is_alive:
            self._trace("a death is near")
            self._arm()

    def _stop(self) -> None:
        if self._broker.is_waiting_for_the_disk:
            self._loop.call_later(STOP_WAIT_S, self._stop)
        elif self._broker.is_alive and not self._broker.has_failed:
            self._trace("the broker is stopped in good order")
            self._loses_power = False
            try:
                self._broker.stop()
            except PowerLoss:
                self._broker.die()
            except StorageError as error:
                self._trace(f"stopping failed: {error}")
                self._broker.die()

    def _cut(self) -> None:
        links = self._network.links
        for link in links if self._random.random() < 0.3 else self._some(links):
            self._trace("a connection breaks")
            link.cut()

    def _stall(self) -> None:
        for link in self._some(self._network.links):
            self._trace("a connection stalls")
            link.stall(self._random.uniform(0, STALL_S_MAX))

    def _fail_disk(self) -> None:
        operation, error = self._random.choice(DISK_FAULTS)
        self._trace(f"the disk will fail at {operation}: {errno.errorcode[error]}")
        self._disk.fail(operation, error, after=self._random.randint(0, 5))

    def _fail_sync_and_lose_power(self) -> None:
        """What a failed sync left in the page cache must be on the disk before the next life counts it."""
        self._trace("the disk will fail at a sync, and the power go in the next life")
        self._disk.fail("sync_file", errno.EIO, after=self._random.randint(0, 3))
        self._next_deaths = ["kill", "power"] if self._may_lose_power else []

    def _jump(self) -> None:
        """Let the broker's clock be wrong, most often for a while."""
        by_ms = self._random.randint(-CLOCK_JUMP_MS_MAX, CLOCK_JUMP_MS_MAX)
        self._set_clock(by_ms)
        if self._random.random() < 0.7:
            self._loop.call_later(self._random.uniform(0, JUMP_S_MAX), lambda: self._set_clock(-by_ms))

    def _set_clock(self, by_ms: int) -> None:
        self._trace(f"the clock jumps by {by_ms} ms")
        self._clock.jump(by_ms)
        self._behind_ms_max = max(self._behind_ms_max, -self._clock.jumped_ms)

    def _some(self, links: list[Link]) -> list[Link]:
        return [self._random.choice(links)] if links else []
