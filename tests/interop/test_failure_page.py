"""The page of a failed world in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.browser import Browser
from testing.test_run_page import recorded_run

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture
def browser(peers: None, tmp_path: Path) -> Iterator[Browser]:
    from partage.testing.world.run_page import write_run_page

    path = tmp_path / "run.html"
    write_run_page(recorded_run(), path)
    with Browser() as opened:
        opened.open(path.as_uri())
        yield opened
        assert opened.complaints() == []
        assert {url for url in opened.requested() if url != path.as_uri()} == set()


def shown_time(browser: Browser) -> str:
    return browser.look("document.getElementById('now-time').innerText")


def state_of(browser: Browser, process: str) -> str:
    rows = "[...document.querySelectorAll('#now tbody tr')]"
    row = f"{rows}.find(each => each.innerText.includes('{process}'))"
    return browser.look(f"{row}.cells[1].innerText")


def choose(browser: Browser, control: str, value: int, event: str) -> None:
    element = f"document.getElementById('{control}')"
    browser.look(f"{element}.value = {value}; {element}.dispatchEvent(new Event('{event}'))")


def test_page_opens_at_the_failure(browser: Browser) -> None:
    assert shown_time(browser) == "60.000 s"
    assert state_of(browser, "worker-1") == "killed"


def test_slider_shows_states_and_owners_of_its_time(browser: Browser) -> None:
    choose(browser, "slider", 3_000, "input")
    assert 1 < float(shown_time(browser).split()[0]) < 2
    assert state_of(browser, "worker-1") == "running"
    owned = "document.querySelectorAll('#now tbody tr')[1].innerText"
    assert "orders-0" in browser.look(owned)


def test_keys_move_through_the_events(browser: Browser) -> None:
    browser.look("document.getElementById('events').focus()")
    browser.press("ArrowUp", 38)
    assert shown_time(browser) == "4.000 s"
    browser.press("ArrowUp", 38)
    assert shown_time(browser) == "3.000 s"
    browser.press("ArrowDown", 40)
    assert shown_time(browser) == "4.000 s"
    assert "killed" in browser.look("document.querySelector('tr.current').innerText")


def test_play_runs_from_the_start_to_the_failure(browser: Browser) -> None:
    choose(browser, "speed", 10, "change")
    browser.look("document.getElementById('speed').selectedOptions[0].value = 1")
    browser.look("document.activeElement.blur()")
    browser.press(" ", 32)
    assert browser.look("document.getElementById('play').innerText") == "Pause"
    browser.until("document.getElementById('play').innerText === 'Play'")
    assert shown_time(browser) == "60.000 s"


def test_zoom_widens_the_time_line_around_the_current_time(browser: Browser) -> None:
    choose(browser, "slider", 5_000, "input")
    choose(browser, "zoom", 4, "change")
    wide = "document.getElementById('plot').getBoundingClientRect().width"
    view = "document.getElementById('view')"
    assert browser.look(f"{wide} / {view}.clientWidth") == pytest.approx(4, abs=0.01)
    middle = browser.look(f"({view}.scrollLeft + {view}.clientWidth / 2) / {wide}")
    assert middle == pytest.approx(0.5, abs=0.02)


def test_page_is_readable_in_both_colour_schemes(browser: Browser) -> None:
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        lightness = {
            kind: sum(
                map(
                    int,
                    browser.look(f"getComputedStyle(document.body).{kind}")
                    .strip("rgb()")
                    .split(","),
                )
            )
            / 3
            for kind in ("color", "backgroundColor")
        }
        assert abs(lightness["color"] - lightness["backgroundColor"]) > 150
    assert browser.look("document.documentElement.scrollWidth <= innerWidth")
