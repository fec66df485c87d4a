"""Output of the demo on the terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.flights.timeline import Owners, stayed

_WIDTH: Final = 96
_EVERY_S: Final = 0.25
_Look: TypeAlias = Callable[[], tuple[int, ...]]


class ProgressReport:
    """Prints steps and records their durations."""

    def __init__(self) -> None:
        self.console = Console(width=None if Console().is_terminal else _WIDTH, highlight=False)
        self._began = time.monotonic()
        self._steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Print a step, and its duration at the end."""
        self.console.print(f"[bold]{what}[/bold]")
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        self._steps.append((what, took))
        self.console.print(f"  [dim]{took:.1f} s[/dim]")

    def say(self, text: str) -> None:
        """Print a line below the step."""
        self.console.print(f"  {text}")

    @contextmanager
    def bars(self, names: tuple[str, ...], total: int) -> Iterator[Callable[[_Look | None], None]]:
        """Draw a progress bar per name at the bottom.

        The yielded function takes a function that returns the amounts done, which a thread calls
        several times per second. None ends the bars.
        """
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=36),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        progress = Progress(*columns, console=self.console)
        tasks = [progress.add_task(name, total=total) for name in names]
        is_over = threading.Event()
        asking: list[threading.Thread] = []
        looks: list[_Look] = []

        def ask(look: _Look) -> None:
            while not is_over.wait(_EVERY_S):
                update(look)

        def update(look: _Look) -> None:
            for task, done in zip(tasks, look(), strict=True):
                progress.update(task, completed=done)

        def watch(look: _Look | None) -> None:
            if look is None:
                end()
                return
            looks.append(look)
            asking.append(threading.Thread(target=ask, args=(look,), daemon=True))
            asking[0].start()

        def end() -> None:
            is_over.set()
            for thread in asking:
                thread.join()
            asking.clear()
            if looks:
                update(looks.pop())  # The final amounts.
            progress.stop()

        progress.start()
        try:
            yield watch
        finally:
            end()

    def owners(self, owners: Owners) -> None:
        """Print the owners."""
        table = Table("application", "partitions of flights", box=None, padding=(0, 3, 0, 2))
        for member, partitions in sorted(owners.items()):
            table.add_row(member, "  ".join(map(str, partitions)))
        self.console.print(table)

    def rebalance(self, before: Owners, after: Owners) -> None:
        """Print the owners before and after a rebalance, and mark moved partitions."""
        table = Table("application", "before", "after", box=None, padding=(0, 3, 0, 2))
        for name in sorted({*before, *after}):
            held = before.get(name, ())
            shown = "  ".join(map(str, held))
            if name not in after:
                table.add_row(f"[red]{name}[/red]", shown, "[red]killed[/red]")
                continue
            now = (str(p) if p in held else f"[green]+{p}[/green]" for p in after[name])
            table.add_row(name, shown, "  ".join(now))
        self.console.print(table)
        self.say(f"{stayed(before, after)} partitions kept their owner")

    def times(self) -> None:
        """Print the durations of all steps and the total."""
        table = Table("step", "seconds", box=None, padding=(0, 3, 0, 2))
        table.columns[1].justify = "right"
        for what, took in self._steps:
            table.add_row(what, f"{took:.1f}")
        table.add_row("[bold]total[/bold]", f"[bold]{time.monotonic() - self._began:.1f}[/bold]")
        self.console.print(table)
