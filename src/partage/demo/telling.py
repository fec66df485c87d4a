"""What the demo says while it runs and at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from partage.demo.group import Owners, Rebalance

_WIDTH: Final = 96


class Telling:
    """Prints steps as they are done, and remembers how long they took."""

    def __init__(self) -> None:
        self.console = Console(width=None if Console().is_terminal else _WIDTH, highlight=False)
        self._began = time.monotonic()
        self._steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """A step of the story; its time is printed when it is done."""
        self.console.print(f"[bold]{what}[/bold]")
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        self._steps.append((what, took))
        self.console.print(f"  [dim]{took:.1f} s[/dim]")

    def say(self, text: str) -> None:
        """A line that belongs to the step."""
        self.console.print(f"  {text}")

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A progress bar; call it with how much is done."""
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=36),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.update(task, completed=done)

    def owners(self, owners: Owners) -> None:
        """Who owns what."""
        table = Table("member", "partitions of flights", box=None, padding=(0, 3, 0, 2))
        for member, partitions in sorted(owners.items()):
            table.add_row(member, "  ".join(map(str, partitions)))
        self.console.print(table)

    def rebalance(self, rebalance: Rebalance) -> None:
        """Who owned what before, and who owns it now; what moved is marked."""
        table = Table("member", "before", "after", box=None, padding=(0, 3, 0, 2))
        for member, before in sorted(rebalance.before.items()):
            after = rebalance.after.get(member)
            held = "  ".join(map(str, before))
            if after is None:
                table.add_row(f"[red]{member}[/red]", held, "[red]killed[/red]")
                continue
            shown = (str(p) if p in before else f"[green]+{p}[/green]" for p in after)
            table.add_row(member, held, "  ".join(shown))
        self.console.print(table)
        kept = sum(
            len(set(held) & set(rebalance.after.get(member, ())))
            for member, held in rebalance.before.items()
        )
        self.say(
            f"noticed {rebalance.noticed_s:.1f} s after the kill, "
            f"all partitions owned again {rebalance.settled_s:.2f} s later; "
            f"{kept} partitions stayed where they were"
        )

    def times(self) -> None:
        """All steps with their times, and the whole."""
        table = Table("step", "seconds", box=None, padding=(0, 3, 0, 2))
        table.columns[1].justify = "right"
        for what, took in self._steps:
            table.add_row(what, f"{took:.1f}")
        table.add_row("[bold]in all[/bold]", f"[bold]{time.monotonic() - self._began:.1f}[/bold]")
        self.console.print(table)
