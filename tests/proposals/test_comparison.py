"""Grids, results on disk, claims and the report of a comparison."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from partage.proposals.comparison.cell import PHASES, Workload, run_cell
from partage.proposals.comparison.cells import append_result, load_results
from partage.proposals.comparison.claim import Claim, ClaimVerdict
from partage.proposals.comparison.grid import cell_command, expand_grid, parse_parameter
from partage.proposals.comparison.machine_limits import describe_machine
from partage.proposals.comparison.report import Comparison, format_report
from partage.proposals.comparison.report_texts import COLUMN_TEXTS, PHASE_TEXTS
from partage.proposals.comparison.seed_medians import group_by_seed, median_phase
from partage.proposals.comparison.socket_cell import expand_socket_grid
from partage.proposals.designs.catalog import DESIGNS
from partage.proposals.designs.finding_worlds import FindingWorld, find_world, findings_of

SMALL = Workload(design="single-assignor", members=3, phases=("join",))


class TestGrid:
    def test_grid_has_each_design_with_each_combination(self) -> None:
        cells = expand_grid([], {"members": (10, 20), "metadata_kb": (0.0, 1.0)})
        assert len(cells) == len(set(cells)) == 4 * len(DESIGNS)

    def test_parameter_is_parsed_with_its_type(self) -> None:
        assert parse_parameter("members=10,100") == ("members", (10, 100))
        assert parse_parameter("metadata_kb=0.5") == ("metadata_kb", (0.5,))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("memers=3", "did you mean 'members'"),
            ("members", "is no parameter of a grid; did you mean 'members'\\? Use NAME="),
            ("foo=1", "'foo=1' is no parameter of a grid. Use NAME=VALUE"),
            ("members=ten", "not all of type int"),
            ("members=-1", "must be finite and not negative"),
            ("metadata_kb=inf", "must be finite and not negative"),
            ("metadata_kb=nan", "must be finite and not negative"),
            ("members=", "not all of type int"),
        ],
    )
    def test_wrong_parameter_is_refused(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            parse_parameter(text)

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"members": (2,)}, "at least 3 members"),
            ({"members": (20_001,)}, "the limit is 20,000"),
            ({"members": (5_000,), "metadata_kb": (1_000.0,)}, "bytes of metadata"),
            ({"session_timeout_ms": (100,)}, "^session_timeout_ms=100 is not between 6000 and 18"),
            ({"session_timeout_ms": (5_000,)}, "not between 6000 and 1800000"),
            ({"heartbeat_interval_ms": (22_501,)}, "at most half of session_timeout_ms=45000"),
            ({"metadata_refresh_ms": (10,)}, "below 1000"),
            ({"kills": (9,)}, "kills=9 is too large for this cell; the limit is 8"),
            ({"slow_ms": (20_000,)}, "the limit is 11250, a quarter of session_timeout"),
            ({"topics": (0,)}, "topics=0 is not between 1 and the 20 partitions"),
            ({"topics": (21,)}, "topics=21 is not between 1 and the 20 partitions"),
            ({"topics": (4,), "subscribed_topics": (5,)}, "subscribed_topics=5 is above"),
            ({"topics": (4,), "subscribed_topics": (1,)}, "2 subscribers, of which 6 may be away"),
        ],
    )
    def test_impossible_cell_is_refused_before_anything_runs(
        self, parameters: dict[str, tuple[float, ...]], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            expand_grid(["two-phase-eager"], parameters)

    def test_subscriptions_must_be_equal_if_members_send_hashes(self) -> None:
        grid = {"members": (40,), "topics": (4,), "subscribed_topics": (2,)}
        assert expand_grid(["multi-assignor"], grid)
        with pytest.raises(ValueError, match="need the same topics"):
            expand_grid(["multi-assignor-hashes"], grid)

    def test_more_partitions_than_a_message_carries_are_refused(self) -> None:
        grid = {"members": (10,), "partitions": (200_000,)}
        assert expand_grid(["broker-side", "multi-assignor"], grid)
        few = {"members": (3,), "partitions": (40_000,)}
        assert expand_grid(["multi-assignor"], few)
        with pytest.raises(ValueError, match=r"up to 44,000 partitions; .* room for 32,767"):
            expand_grid(["broker-side"], few)

    @pytest.mark.parametrize(
        ("design", "members", "fits", "exceeds"),
        [
            ("multi-assignor-compressed", 10, 16_000, 17_000),
            ("multi-assignor-compressed-group", 1_000, 250, 270),
        ],
    )
    def test_more_metadata_than_members_decompress_is_refused(
        self, design: str, members: int, fits: float, exceeds: float
    ) -> None:
        assert expand_grid([design], {"members": (members,), "metadata_kb": (fits,)})
        with pytest.raises(ValueError, match=r"bytes of metadata; its members accept \d\d"):
            expand_grid([design], {"members": (members,), "metadata_kb": (exceeds,)})

    def test_unknown_phase_is_refused_before_anything_runs(self) -> None:
        with pytest.raises(ValueError, match="no phase 'lunch'"):
            expand_grid(["multi-assignor"], {}, phases=("join", "lunch"))

    @pytest.mark.parametrize(
        ("phases", "words"),
        [
            (("join", "new partitions"), ' --phase join --phase "new partitions"'),
            ((), " --phase none"),
        ],
    )
    def test_command_has_the_phases(self, phases: tuple[str, ...], words: str) -> None:
        assert cell_command(Workload(design="multi-assignor", phases=phases)).endswith(words)

    def test_command_over_sockets_has_their_defaults(self) -> None:
        (cell,) = expand_socket_grid(["multi-assignor"], {"members": (4,)})
        assert cell_command(cell, is_over_sockets=True) == (
            "partage lab compare --design multi-assignor --sockets --grid members=4"
        )

    @pytest.mark.parametrize(
        "cell",
        [
            Workload(
                design="multi-assignor",
                members=7,
                metadata_kb=0.123_456_789,
                session_timeout_ms=1_234_567,
                seed=20_261_127,
            ),
            Workload(design="multi-assignor"),
        ],
        ids=["parameters", "defaults"],
    )
    def test_command_repeats_the_cell(self, cell: Workload) -> None:
        words = cell_command(cell).split()
        grid = dict(
            parse_parameter(words[n + 1]) for n, each in enumerate(words) if each == "--grid"
        )
        assert grid  # without one, the command runs the default grid
        assert expand_grid([words[words.index("--design") + 1]], grid) == [cell]


class TestResults:
    def test_results_are_loaded_without_an_incomplete_line(self, tmp_path: Path) -> None:
        path = tmp_path / "cells.jsonl"
        result = run_cell(SMALL)
        append_result(path, result)
        path.write_bytes(path.read_bytes() + msgspec.json.encode(result)[:-40])
        assert load_results(path) == {SMALL: result}

    def test_result_after_an_incomplete_line_replaces_it(self, tmp_path: Path) -> None:
        path = tmp_path / "cells.jsonl"
        result = run_cell(SMALL)
        append_result(path, result)
        complete = path.read_bytes()
        path.write_bytes(complete + complete[:-40])
        append_result(path, result)
        assert path.read_bytes() == 2 * complete
        path.write_bytes(complete[:-40])
        append_result(path, result)
        assert path.read_bytes() == complete

    def test_other_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "cells.jsonl"
        path.write_text("not a result\n")
        with pytest.raises(ValueError, match="is not a file of results"):
            load_results(path)

    def test_report_has_each_phase_and_the_findings(self) -> None:
        report = format_report(Comparison(cells=[run_cell(SMALL)]))
        assert "### 3 members, 6 partitions, 0 KB of metadata, seed 1" in report
        assert "| single-assignor | join |" in report
        assert "partage lab compare --design single-assignor --grid members=3" in report
        assert "- single-assignor, rules one reader" in report


class TestReport:
    def test_report_quotes_a_claim_with_its_rule_and_verdict(self) -> None:
        claim = Claim(
            title="A title",
            statement="a statement",
            setup="Two worlds.",
            rule="Refuted if seven.",
            figures=[("messages", "7")],
            verdict=ClaimVerdict.REFUTED,
            explanation="It is seven.",
        )
        report = format_report(Comparison(claims=[claim]))
        assert "| A title | **refuted** |" in report
        assert "### A title: refuted" in report
        assert "**Measured.** Two worlds." in report
        assert "| messages | 7 |" in report
        assert "**Rule.** Refuted if seven." in report
        assert "**Verdict: refuted.** It is seven." in report

    def test_report_defines_each_phase_and_column(self) -> None:
        assert list(PHASE_TEXTS) == ["form", *PHASES]
        report = format_report(Comparison(cells=[run_cell(SMALL)]))
        head = next(line for line in report.splitlines() if line.startswith("| design | phase |"))
        columns = head.strip("| ").split(" | ")[2:]
        assert columns == list(COLUMN_TEXTS)
        for name in (*PHASE_TEXTS, *COLUMN_TEXTS):
            assert f"\n| {name} | " in report

    def test_cells_of_several_seeds_are_one_row_with_median_and_range(self) -> None:
        cells = expand_grid(
            ["single-assignor"], {"members": (3,), "seed": (1, 2, 3)}, phases=("join",)
        )
        results = [run_cell(each) for each in cells]
        stable = sorted(each.phase("join").stable_after_s or 0.0 for each in results)
        assert stable[0] < stable[1] < stable[2]
        report = format_report(Comparison(cells=results[::-1]))
        assert "### 3 members, 6 partitions, 0 KB of metadata, seeds 1, 2, 3\n" in report
        shown = f"| {stable[1]:.2f} s ({stable[0]:.2f} s to {stable[2]:.2f} s) |"
        (row,) = (line for line in report.splitlines() if "| single-assignor | join |" in line)
        assert shown in row
        assert "--grid members=3 --grid seed=1,2,3 --phase join\n" in report

    def test_one_unstable_seed_is_in_the_range(self) -> None:
        cells = expand_grid(["single-assignor"], {"members": (3,), "seed": (1, 2, 3)}, phases=())
        first, *others = (run_cell(each) for each in cells)
        phases = [msgspec.structs.replace(first.phases[0], stable_after_s=None, is_stable=False)]
        unstable = msgspec.structs.replace(first, phases=phases)
        report = format_report(Comparison(cells=[unstable, *others]))
        assert " s to never) |" in report
        (group,) = group_by_seed([unstable, *others])
        assert group.median().phase("form").is_stable
        assert not median_phase([phases[0], *others[0].phases, *phases]).is_stable

    def test_report_has_the_machine_of_its_cpu_times(self) -> None:
        machine = describe_machine()
        assert re.search(r", \d+ CPUs, Python 3\.\d+\.\d+, load average \d+\.\d$", machine)
        assert f"at the end of the run ({machine})." in format_report(Comparison(machine=machine))

    def test_cells_over_sockets_have_a_section_and_commands(self) -> None:
        (cell,) = expand_socket_grid(["single-assignor"], {"members": (3,)}, phases=("join",))
        result = msgspec.structs.replace(run_cell(cell), broken_rules=["one reader: two read"])
        report = format_report(Comparison(socket_cells=[result]))
        assert "## Over sockets" in report
        assert "### 3 members over sockets, 6 partitions, 0 KB of metadata, seed 1\n" in report
        assert "--design single-assignor --sockets --grid members=3 --phase join\n" in report
        assert "- single-assignor: one reader: two read" in report
        assert "## Measurements" not in report

    def test_finding_has_a_seed_steps_and_a_command(self) -> None:
        (finding, *_) = findings_of("two-phase-resync")
        world = find_world("two-phase-resync", 0, seeds=(28,))
        assert world is not None
        found = FindingWorld(design="two-phase-resync", finding=finding, world=world)
        report = format_report(Comparison(findings=[found]))
        rules = "one reader, commits, lost commits, duplicates"
        assert f"### two-phase-resync, rules {rules}, after a new partition" in report
        assert "Seed 28 breaks the rule “one reader” with these steps" in report
        assert f"```sh\n{world.command}\n```" in report
        assert all(f"- {step}" in report for step in world.steps)
        unknown = msgspec.structs.replace(found, world=None)
        report = format_report(Comparison(findings=[unknown]))
        assert re.search(r"None of the \d+ searched worlds shows it\.", report)
