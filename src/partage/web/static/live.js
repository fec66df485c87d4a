"use strict";
// Refreshes the page: fetches its live section and replaces the elements that differ.
// Without this script, the page is complete when loaded, and reloads itself.
(() => {
  const every = Math.max(Number(document.body.dataset.interval) || 2000, 250);
  const pause = document.getElementById("pause");
  const lost = document.getElementById("lost");
  let isPaused = false;

  function put(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("live");
    const old = document.getElementById("live");
    if (!fresh || !old) return;
    const selection = document.getSelection();
    if (selection && !selection.isCollapsed && old.contains(selection.anchorNode)) return;
    const before = [...old.children];
    const after = [...fresh.children];
    const isAlike =
      before.length === after.length &&
      before.every((each, place) => each.tagName === after[place].tagName);
    if (!isAlike) {
      old.replaceChildren(...after);
      return;
    }
    // Equal elements stay, so that screen readers do not repeat them and nothing moves.
    before.forEach((each, place) => {
      if (each.outerHTML !== after[place].outerHTML) replace(each, after[place]);
    });
  }

  function replace(old, fresh) {
    const left = old.scrollLeft;
    const focused = document.activeElement;
    const trail = old.contains(focused) ? trailOf(old, focused) : null;
    old.replaceWith(fresh);
    fresh.scrollLeft = left;
    if (trail) found(fresh, trail)?.focus({ preventScroll: true });
  }

  // Keeps the focus: on the link with the same target, otherwise on the element itself.
  function trailOf(root, element) {
    const href = element.getAttribute("href");
    return { href, place: leadingTo(root, href).indexOf(element) };
  }

  function found(root, trail) {
    return trail.href === null ? root : leadingTo(root, trail.href)[trail.place];
  }

  function leadingTo(root, href) {
    return [...root.querySelectorAll("a")].filter((each) => each.getAttribute("href") === href);
  }

  async function look() {
    if (document.hidden || isPaused) return;
    const url = new URL(location.href);
    url.searchParams.set("part", "live");
    url.hash = "";
    try {
      const answer = await fetch(url, {
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
        signal: AbortSignal.timeout(15000),
      });
      const text = await answer.text();
      if (!text.startsWith("<main")) throw new Error(text);
      lost.hidden = true;
      if (!isPaused) put(text);
    } catch {
      if (!lost.hidden) return;
      const now = new Date().toISOString().slice(11, 19);
      lost.textContent = `lost connection to the server of this page at ${now} UTC; the data is older`;
      lost.hidden = false;
    }
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    pause.textContent = isPaused ? "Resume" : "Pause";
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
