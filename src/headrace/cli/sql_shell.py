"""The shell of `headrace sql`: statements that end with a semicolon, completion by Tab, and a history.

Views that are created here run beside the shell until it ends.
"""

from __future__ import annotations

import readline
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.cli.output import err, say
from headrace.errors import HeadraceError
from headrace.streams.sql.completion import candidates
from headrace.streams.sql.statements import is_complete, parse_statements

if TYPE_CHECKING:
    from headrace.cli.sql_runner import Runner, ViewDriver
    from headrace.streams.sql.definitions import View

HISTORY_MAX: Final = 1_000
"""How many lines are remembered."""
STOP_S_MAX: Final = 60.0
_PROMPT: Final = "sql> "
_MORE: Final = "  -> "
_END_WORDS: Final = ("exit", "quit", "\\q")
_HELP: Final = """\
SELECT ...;                         up to now; LIVE SELECT ...; goes on until Ctrl-C
SHOW TABLES;  SHOW VIEWS;  DESCRIBE name;
CREATE TABLE name (columns) WITH (topic = '...', event_time = '...', watermark = '30 seconds');
CREATE VIEW name AS SELECT ...;     runs beside this shell; `headrace run --views` runs views without it
DROP TABLE name;  DROP VIEW name;
Names that have dots or dashes stand in backticks. Tab completes. Ctrl-D ends."""


class Shell:
    """Reads statements from a terminal until its end."""

    def __init__(self, runner: Runner, driver: ViewDriver, read: Callable[[str], str] = input) -> None:
        self._runner = runner
        self._driver = driver
        self._read = read
        self._views: dict[str, subprocess.Popen[bytes]] = {}
        self._offered: list[str] = []

    def run(self) -> None:
        """Until Ctrl-D."""
        history = self._runner.engine.catalog.store.history
        self._prepare(history)
        say("`help;` shows what there is; statements end with a semicolon; Ctrl-D ends")
        try:
            while (text := self._statement()) is not None:
                self._run(text)
        finally:
            history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.write_history_file(history)
            self._stop_views()

    def _statement(self) -> str | None:
        """The next one, over as many lines as it has; None at the end."""
        text = ""
        while True:
            if not text:
                self._tell_ended()
            try:
                text += self._read(_MORE if text else _PROMPT) + "\n"
            except EOFError:
                return None
            except KeyboardInterrupt:
                # As in other shells: what was typed is given up.
                text = ""
                say("")
                continue
            if text.strip().rstrip(";").lower() in _END_WORDS:
                return None
            if is_complete(text):
                return text

    def _run(self, text: str) -> None:
        if text.strip().rstrip("; \n").lower() == "help":
            say(_HELP)
            return
        try:
            for statement in parse_statements(text):
                view = self._runner.run(statement)
                if view is not None:
                    self._start(view)
        except HeadraceError as error:
            err.print("[bold red]error:[/bold red]", end=" ")
            err.print(str(error), markup=False, soft_wrap=True)
        except KeyboardInterrupt:
            say("given up")

    def _start(self, view: View) -> None:
        self._tell_ended()
        if view.name in self._views or self._driver.is_running(view.name):
            say(f"view {view.name} runs already")
            return
        self._views[view.name] = self._driver.start(view)
        say(f"view {view.name} runs beside this shell, until it ends")

    def _tell_ended(self) -> None:
        """Say which views have ended by themselves."""
        for name, process in list(self._views.items()):
            if (code := process.poll()) is not None:
                del self._views[name]
                say(f"view {name} has ended, with code {code}: see {self._driver.log_path(name)}")

    def _prepare(self, history: Path) -> None:
        readline.set_history_length(HISTORY_MAX)
        with suppress(OSError):
            readline.read_history_file(history)
        readline.set_completer_delims(" \t\n,()=<>+*/;")
        readline.set_completer(self._complete)
        readline.parse_and_bind("tab: complete")

    def _complete(self, word: str, number: int) -> str | None:
        """What readline asks for, again and again with growing numbers."""
        if number == 0:
            try:
                self._offered = self._candidates(word)
            except HeadraceError:
                # A shell that offers nothing is better than one that complains while somebody types.
                self._offered = []
        return self._offered[number] if number < len(self._offered) else None

    def _candidates(self, word: str) -> list[str]:
        engine = self._runner.engine
        line = readline.get_line_buffer()
        tables = [listed.name for listed in engine.catalog.list_tables()]
        with engine.catalog.quiet():
            return candidates(line, word, tables, lambda name: list(engine.columns(name)))

    def _stop_views(self) -> None:
        self._tell_ended()
        for process in self._views.values():
            assert process.stdin is not None, "it was given a pipe"
            # It ends when its parent seems to have gone.
            process.stdin.close()
        for name, process in self._views.items():
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                say(f"view {name} took too long to stop, and was killed")
                process.kill()
        if self._views:
            say(f"stopped {', '.join(self._views)}; `headrace run --views` runs views without this shell")
