"""The open pages and their backlogs."""

from __future__ import annotations

import asyncio

from headrace.console.viewers import Event, Viewer, Viewers


def event(number: int) -> Event:
    return Event(name="alert", data=str(number))


async def drain(viewer: Viewer) -> list[str]:
    return [event.data async for event in viewer.events()]


def test_a_page_gets_its_snapshot_then_what_is_published_in_order() -> None:
    async def scenario() -> list[str]:
        viewers = Viewers(viewer_count_max=1, viewer_backlog_max=10)
        viewer = viewers.join([event(1), event(2)])
        assert viewer is not None
        viewers.publish(event(3))
        viewers.close()
        return await drain(viewer)

    assert asyncio.run(scenario()) == ["1", "2", "3"]


def test_a_page_that_waits_is_woken_by_what_is_published() -> None:
    async def scenario() -> list[str]:
        viewers = Viewers(viewer_count_max=1, viewer_backlog_max=10)
        viewer = viewers.join([])
        assert viewer is not None
        reading = asyncio.create_task(drain(viewer))
        await asyncio.sleep(0)
        viewers.publish(event(1))
        await asyncio.sleep(0)
        viewers.publish(event(2))
        viewers.close()
        return await asyncio.wait_for(reading, 5)

    assert asyncio.run(scenario()) == ["1", "2"]


def test_a_page_that_falls_behind_is_cut_off_counted_and_its_write_ended() -> None:
    async def scenario() -> None:
        viewers = Viewers(viewer_count_max=2, viewer_backlog_max=2)
        slow, quick = viewers.join([event(0)] * 50), viewers.join([])
        assert slow is not None
        assert quick is not None
        ended: list[bool] = []
        slow.on_cut_off = lambda: ended.append(True)
        reading = quick.events()
        for number in range(3):
            viewers.publish(event(number))
            await anext(reading)
        assert (viewers.cut_off_count, len(viewers), ended) == (1, 1, [True])
        assert await drain(slow) == ["0"] * 50

    asyncio.run(scenario())


def test_no_more_pages_open_than_are_allowed() -> None:
    async def scenario() -> None:
        viewers = Viewers(viewer_count_max=1, viewer_backlog_max=1)
        first = viewers.join([])
        assert first is not None
        assert viewers.join([]) is None
        viewers.leave(first)
        assert viewers.join([]) is not None

    asyncio.run(scenario())


def test_a_page_that_opens_while_the_console_closes_ends_at_once() -> None:
    async def scenario() -> list[str]:
        viewers = Viewers(viewer_count_max=1, viewer_backlog_max=1)
        viewers.close()
        viewer = viewers.join([event(1)])
        assert viewer is not None
        return await asyncio.wait_for(drain(viewer), 5)

    assert asyncio.run(scenario()) == ["1"]
