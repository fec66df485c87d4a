"""``partage lab diagram``: draw the messages of a design of consumer groups."""

from __future__ import annotations

from typing import Annotated

import typer

from partage.console.common.dispatch import command_app
from partage.console.common.errors import usage_error
from partage.console.common.options import JsonOption
from partage.console.common.output import ignore_closed_output, json_help, print_json
from partage.proposals.diagrams.recorder import DiagramScenario, MessageDiagram, record_diagram
from partage.proposals.diagrams.text_diagram import draw_text

app = command_app()


@app.command(epilog=json_help(MessageDiagram))
def diagram(
    design: Annotated[
        str, typer.Argument(metavar="DESIGN", help="A design or variant.", show_default=False)
    ],
    scenario: Annotated[
        DiagramScenario,
        typer.Option(
            "--scenario",
            help="What happens: two members form a group, one joins the other, or the topic gets "
            "partitions.",
        ),
    ] = DiagramScenario.FORM,
    seed: Annotated[
        int, typer.Option("--seed", metavar="SEED", min=0, help="Seed of the network delays.")
    ] = 1,
    json: JsonOption = False,
) -> None:
    """Draw the messages of a design of consumer groups, from a run in the simulator.

    The run has two members A and B, and one topic.

    \b
    Examples:
      partage lab diagram two-phase-cooperative --scenario join
      partage lab diagram broker-side --seed 7
    """
    try:
        recorded = record_diagram(design, scenario, seed)
    except ValueError as error:
        raise usage_error(str(error)) from None
    with ignore_closed_output():
        if json:
            print_json(recorded)
        else:
            print(draw_text(recorded), end="")
