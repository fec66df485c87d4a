"""The files of a comparison: the report, its plots, and the table of all cells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from partage.proposals.comparison.plots import METRICS, collect_plot, draw_svg
from partage.proposals.comparison.report import Comparison, format_report, picture_address
from partage.proposals.comparison.seed_medians import group_by_seed
from partage.proposals.designs.catalog import DESIGNS, VARIANTS

#: The packages that `write_report` needs.
_PACKAGES: Final = ("matplotlib", "pyarrow", "markdown_it")


def missing_packages() -> list[str]:
    """Return the packages that `write_report` needs and that are not installed."""
    return [each for each in _PACKAGES if find_spec(each) is None]


def write_report(directory: Path, comparison: Comparison) -> list[Path]:
    """Write ``report.html``, ``report.md`` with its pictures, and ``cells.parquet``.

    The plots have the designs without their variants, and cells over sockets only if there are no
    others. The table has all cells.

    Args:
        directory: An existing directory.
        comparison: The results, with cells in any order.

    Returns:
        The files, without the pictures.

    Raises:
        OSError: A file cannot be written.
    """
    from partage.proposals.comparison.page import format_page
    from partage.proposals.comparison.result_table import write_results

    cells = comparison.cells or comparison.socket_cells
    plotted = [each for each in cells if each.workload.design in DESIGNS] or cells
    used = {each.workload.design for each in plotted}
    designs = [each for each in (*DESIGNS, *VARIANTS) if each in used]
    medians = [each.median() for each in group_by_seed(plotted)]
    plots = [collect_plot(metric, medians) for metric in METRICS]
    pictures = {picture_address(plot): draw_svg(plot, designs) for plot in plots}
    report = format_report(comparison, plots)
    table, text, page = (directory / each for each in ("cells.parquet", "report.md", "report.html"))
    for address, svg in pictures.items():
        (directory / address).parent.mkdir(exist_ok=True)
        with _replaced(directory / address) as part:
            part.write_text(svg, encoding="utf-8")
    simulated = (*comparison.cells, *comparison.further_cells)
    with _replaced(table) as part:
        write_results(part, simulated, comparison.socket_cells)
    with _replaced(text) as part:
        part.write_text(report, encoding="utf-8")
    with _replaced(page) as part:
        part.write_text(format_page(report, pictures), encoding="utf-8")
    return [page, text, table]


@contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """Yield a path to write to, then rename it: a killed run leaves the earlier file complete."""
    part = path.with_name(f"{path.name}.part")
    yield part
    part.replace(path)
