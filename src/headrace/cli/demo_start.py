"""Starts what a demo is made of, each part when what it needs is there:

    broker → PostgreSQL → Redis → what the example prepares → capture → page → pipelines → generator

A recipe leaves out what it does not need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from headrace.cli.demo_parts import (
    add_capture,
    broker_child,
    capture_child,
    console_child,
    generator_child,
    pipeline_child,
    postgres_child,
    prepare,
    redis_child,
    tell_rate,
)
from headrace.cli.demo_recipe import Addresses, Recipe
from headrace.cli.foreground import free_address
from headrace.cli.output import say
from headrace.cli.postgres import require_postgres
from headrace.config import CaptureConfig
from headrace.supervisor import Supervisor

VIEW_NAME: Final = "view.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the user asked for."""

    rate: int
    seed: int
    port: int
    broker_port: int
    postgres_port: int
    redis_port: int
    realtime: bool


def require_parts(recipe: Recipe) -> None:
    """Fail before anything is started where something is not installed."""
    # Spark is an extra: only the commands that need it may import what needs it.
    from headrace.config import StreamsConfig  # noqa: PLC0415
    from headrace.streams.jars import resolve_jars  # noqa: PLC0415
    from headrace.streams.java import find_java  # noqa: PLC0415

    if "postgres" in recipe.needs:
        require_postgres()
    if "redis" in recipe.needs:
        from headrace.cli.redis import require_redis  # noqa: PLC0415  # see above

        require_redis()
    find_java()
    config = StreamsConfig()
    resolve_jars(config.cache_dir, config.jars_dir)


def start_parts(
    supervisor: Supervisor, example: Path, recipe: Recipe, directory: Path, options: DemoOptions
) -> str:
    """Start the children. Returns the page's address, with the token that lets a browser act."""
    addresses = _start_servers(supervisor, recipe, directory, options)
    environment = addresses.environment(recipe)
    generator = example / recipe.generator
    prepare(generator, addresses.fill(recipe.prepare), environment)
    _start_capture(supervisor, recipe, addresses)
    view = example / VIEW_NAME
    tell_rate(view, addresses.bootstrap, options.rate)
    listen = free_address("page", options.port)
    page = supervisor.start(
        console_child(
            listen,
            addresses.bootstrap,
            directory,
            view,
            events=example / recipe.events if recipe.events else None,
            environment={"HEADRACE_POSTGRES": addresses.postgres} if addresses.postgres else {},
        )
    )
    say(f"page      [bold]{page_to_open(page, recipe.page)}[/bold]")
    say("pipeline  starting Spark (about half a minute)")
    running = supervisor.start(
        pipeline_child(
            example / recipe.pipelines,
            addresses.bootstrap,
            directory,
            realtime=options.realtime,
            options=addresses.fill(recipe.run),
            environment=environment,
        )
    )
    say(f"pipeline  running {running}")
    told = addresses.fill(recipe.generate)
    supervisor.start(
        generator_child(generator, told, rate=options.rate, seed=options.seed, environment=environment)
    )
    say(f"generator {options.rate} {recipe.unit} a second; watch the page; Ctrl-C stops everything")
    return page


def page_to_open(page: str, path: str) -> str:
    """The address of one of the pages, with the token of the first one's."""
    root, _, token = page.partition("/?")
    return f"{root}{path}?{token}" if token else f"{root.rstrip('/')}{path}"


def _start_servers(
    supervisor: Supervisor, recipe: Recipe, directory: Path, options: DemoOptions
) -> Addresses:
    broker = broker_child(free_address("broker", options.broker_port), directory / "broker")
    bootstrap = supervisor.start(broker)
    say(f"broker    listening on {bootstrap}; any Kafka client can use it")
    addresses = Addresses(bootstrap=bootstrap, directory=directory)
    if "postgres" in recipe.needs:
        listen = free_address("postgres", options.postgres_port)
        dsn = supervisor.start(postgres_child(listen, directory))
        say(f'postgres  "{dsn}"')
        addresses = replace(addresses, postgres=dsn)
    if "redis" in recipe.needs:
        listen = free_address("redis", options.redis_port)
        password_file = Path(supervisor.start(redis_child(listen, directory)))
        say(f"redis     listening on {listen}; its password is in {password_file}")
        addresses = replace(addresses, redis=f"redis://:{quote(password_file.read_text())}@{listen}/0")
    return addresses


def _start_capture(supervisor: Supervisor, recipe: Recipe, addresses: Addresses) -> None:
    if recipe.capture is None:
        return
    assert addresses.postgres is not None, "a recipe that has a capture needs PostgreSQL"
    config = CaptureConfig(
        name=recipe.capture.name,
        dsn=addresses.postgres,
        bootstrap=addresses.bootstrap,
        data_dir=addresses.directory,
        include_tables=recipe.capture.tables,
    )
    add_capture(config)
    topics = supervisor.start(capture_child(config.name, addresses.directory))
    say(f"capture   publishing changes to {topics}")
