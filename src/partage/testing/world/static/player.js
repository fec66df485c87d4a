"use strict";
// Moves through the recorded run: the time line, the table of processes and the list of events.
(() => {
  const run = JSON.parse(document.getElementById("run").textContent);
  const byId = (id) => document.getElementById(id);
  const plot = byId("plot"), view = byId("view"), head = byId("head"), slider = byId("slider");
  const events = byId("events"), play = byId("play");
  const rows = [...events.querySelectorAll("tbody tr")];
  const times = rows.map((row) => Number(row.dataset.at));
  const end = run.scale[run.scale.length - 1][0];
  let now = run.failed, current = null, frame = null;

  // Between two points of the scale, from column 0 to column 1 or back.
  function convert(value, from, to) {
    for (let i = 1; i < run.scale.length; i++) {
      const [low, high] = [run.scale[i - 1], run.scale[i]];
      if (value <= high[from] && high[from] > low[from]) {
        const share = Math.max(value - low[from], 0) / (high[from] - low[from]);
        return low[to] + share * (high[to] - low[to]);
      }
    }
    return run.scale[run.scale.length - 1][to];
  }
  const width = () => plot.getBoundingClientRect().width;
  const shareOf = (at) => convert(at, 0, 1);
  const timeOf = (share) => convert(share, 1, 0);

  function cells(process) {
    const state = process.states.find(([from, to]) => from <= now && now < to);
    const last = process.states[process.states.length - 1];
    const name = state ? state[2] : last && now >= last[1] ? last[2] : "not started";
    const owned = run.owned
      .filter(([owner, , from, to]) => owner === process.name && from <= now && now <= to)
      .map((each) => each[1])
      .sort();
    const request = run.requests.findLast(([at, who]) => at <= now && who === process.name);
    return [name, owned.join(", "), request ? `${request[2]} at ${request[0].toFixed(3)} s` : ""];
  }

  const body = byId("now").tBodies[0];
  for (const process of run.processes) {
    const row = body.insertRow();
    const title = document.createElement("th");
    const dot = document.createElement("span");
    title.scope = "row";
    dot.className = `dot ${process.colour}`;
    title.append(dot, process.name);
    row.append(title, ...["", "", ""].map(() => document.createElement("td")));
  }

  // Index of the last event that has happened.
  function position() {
    let low = 0, high = times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= now + 1e-6) low = middle + 1; else high = middle;
    }
    return low - 1;
  }

  function show(row) {
    now = Math.min(Math.max(now, 0), end);
    const share = shareOf(now);
    head.setAttribute("x1", `${share * 100}%`);
    head.setAttribute("x2", `${share * 100}%`);
    slider.value = Math.round(share * 10000);
    slider.setAttribute("aria-valuetext", `${now.toFixed(3)} seconds`);
    byId("now-time").textContent = `${now.toFixed(3)} s`;
    run.processes.forEach((process, index) => {
      const [state, owned, request] = cells(process);
      const tds = body.rows[index].querySelectorAll("td");
      tds[0].textContent = state;
      tds[0].className = ["killed", "failed"].includes(state) ? "down" : "";
      tds[1].textContent = owned;
      tds[2].textContent = request;
    });
    const index = row ?? position();
    rows.forEach((each, at) => each.classList.toggle("future", at > index));
    current?.classList.remove("current");
    current = rows[index] ?? null;
    current?.classList.add("current");
    if (current) keepVisible(current);
    const x = share * width();
    if (x < view.scrollLeft || x > view.scrollLeft + view.clientWidth) {
      view.scrollLeft = x - view.clientWidth / 2;
    }
  }

  function keepVisible(row) {
    const top = row.offsetTop, bottom = top + row.offsetHeight;
    const header = events.querySelector("thead").offsetHeight;
    if (top - header < events.scrollTop) events.scrollTop = top - header;
    else if (bottom > events.scrollTop + events.clientHeight) {
      events.scrollTop = bottom - events.clientHeight;
    }
  }

  function stop() {
    if (frame !== null) cancelAnimationFrame(frame);
    frame = null;
    play.textContent = "Play";
  }

  function start() {
    if (now >= end) now = 0;
    let before = performance.now();
    const step = (at) => {
      const share = shareOf(now) + (at - before) / 1000 / Number(byId("speed").value);
      before = at;
      now = timeOf(Math.min(share, 1));
      show();
      if (share >= 1) stop(); else frame = requestAnimationFrame(step);
    };
    play.textContent = "Pause";
    frame = requestAnimationFrame(step);
  }

  function goTo(index) {
    if (index < 0 || index >= rows.length) return;
    stop();
    now = times[index];
    show(index);
  }

  function neighbour(step) {
    let index = rows.indexOf(current) + step;
    while (rows[index] && getComputedStyle(rows[index]).display === "none") index += step;
    return index;
  }

  const toggle = () => (frame === null ? start() : stop());
  play.addEventListener("click", toggle);
  byId("previous").addEventListener("click", () => goTo(neighbour(-1)));
  byId("next").addEventListener("click", () => goTo(neighbour(1)));
  byId("failure").addEventListener("click", () => { stop(); now = run.failed; show(); });
  slider.addEventListener("input", () => { stop(); now = timeOf(slider.value / 10000); show(); });
  byId("zoom").addEventListener("change", (event) => {
    plot.style.width = `${event.target.value * 100}%`;
    plot.dataset.zoom = event.target.value;
    view.scrollLeft = shareOf(now) * width() - view.clientWidth / 2;
  });
  plot.addEventListener("click", (event) => {
    const box = plot.getBoundingClientRect();
    stop();
    now = timeOf((event.clientX - box.left) / box.width);
    show();
  });
  events.addEventListener("click", (event) => goTo(rows.indexOf(event.target.closest("tr"))));
  events.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    goTo(neighbour(step));
  });
  document.addEventListener("keydown", (event) => {
    const isControl = event.target.closest("button, select, input");
    if (event.key !== " " || isControl) return;
    event.preventDefault();
    toggle();
  });
  for (const kind of ["requests", "logs"]) {
    byId(`with-${kind}`).addEventListener("change", (event) => {
      events.classList.toggle(`without-${kind}`, !event.target.checked);
    });
  }
  show();
})();
