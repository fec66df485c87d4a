"use strict";
// Keeps the page as it is now: fetches its changing part and puts it in the place of the old one.
// Without this script the page is right when it is loaded, and reloads itself.
(() => {
  const every = Math.max(Number(document.body.dataset.interval) || 2000, 250);
  const pause = document.getElementById("pause");
  const lost = document.getElementById("lost");
  let isPaused = false;
  let lastWell = Date.now();

  function put(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("live");
    const old = document.getElementById("live");
    if (!fresh || !old || fresh.outerHTML === old.outerHTML) return;
    const selection = document.getSelection();
    if (selection && !selection.isCollapsed && old.contains(selection.anchorNode)) return;
    const focused = old.contains(document.activeElement) ? pathTo(old, document.activeElement) : null;
    const scrolled = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    old.replaceWith(document.adoptNode(fresh));
    [...fresh.querySelectorAll(".scroll")].forEach((each, place) => {
      each.scrollLeft = scrolled[place] || 0;
    });
    if (focused) at(fresh, focused)?.focus({ preventScroll: true });
  }

  // What has the focus keeps it: a link by where it leads to, anything else by its place.
  function pathTo(root, element) {
    const href = element.getAttribute("href");
    const alike = href === null ? null : [...root.querySelectorAll("a")].filter((a) => a.getAttribute("href") === href);
    if (alike) return { href, place: alike.indexOf(element) };
    return { place: element === root ? -1 : [...root.querySelectorAll("[tabindex]")].indexOf(element) };
  }

  function at(root, path) {
    if (path.href !== undefined) {
      return [...root.querySelectorAll("a")].filter((a) => a.getAttribute("href") === path.href)[path.place];
    }
    return path.place < 0 ? root : root.querySelectorAll("[tabindex]")[path.place];
  }

  async function look() {
    if (document.hidden || isPaused) return;
    const url = new URL(location.href);
    url.searchParams.set("part", "live");
    url.hash = "";
    try {
      const answer = await fetch(url, { cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(15000) });
      const text = await answer.text();
      if (!text.startsWith("<main")) throw new Error(text);
      lastWell = Date.now();
      lost.hidden = true;
      if (!isPaused) put(text);
    } catch {
      const seconds = Math.round((Date.now() - lastWell) / 1000);
      const words = `cannot reach this page's own server; what you see is ${seconds} s old or more`;
      if (lost.textContent !== words) lost.textContent = words;
      lost.hidden = false;
    }
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Go on" : "Pause";
    look();
  });
  document.addEventListener("visibilitychange", look);

  (async () => {
    for (;;) {
      await new Promise((resume) => setTimeout(resume, every));
      await look();
    }
  })();
})();
