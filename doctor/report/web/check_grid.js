/* The grid of hosts and checks: rows that are alike are one, and a page has 50 of them. */
const GRID_SIGNS = {E: "✗", w: "!", c: "‼", u: "?", h: "¿", v: "~", p: "✓", s: "–", ".": ""};
const NOTABLE = "Ewcu";
const ROWS_ON_PAGE = 50;

function drawCheckGrid(place, grid) {
  const columns = grid.cells.map(lettersOf);
  const notes = new Map();
  for (const [check, text, rows] of grid.notes) {
    for (const row of numbersOf(rows)) {
      const key = `${check}:${row}`;
      if (!notes.has(key)) notes.set(key, []);
      notes.get(key).push(text);
    }
  }
  const isNotable = columns.some((letters) => letters.some((letter) => NOTABLE.includes(letter)));
  const states = Object.keys(grid.states).filter((state) => columns.some((letters) => letters.includes(state)));
  const hostSearch = element("input", {type: "search", placeholder: say("part of a name"), oninput: update});
  const checkSearch = element("input", {type: "search", placeholder: say("part of a name"), oninput: update});
  const stateChoice = element("select", {onchange: update}, element("option", {value: ""}, say("All")),
    ...states.map((state) => element("option", {value: state}, grid.states[state])));
  const areaChoice = element("select", {onchange: update}, element("option", {value: ""}, say("All")),
    ...grid.areas.map((area, number) => element("option", {value: number}, area)));
  const notableOnly = element("input", {type: "checkbox", onchange: update});
  const together = element("input", {type: "checkbox", checked: true, onchange: update});
  notableOnly.checked = isNotable;
  const count = element("p", {class: "quiet", role: "status"});
  const readout = element("div", {class: "readout"}, say("Choose a cell with the mouse, or with the arrow keys."));
  const box = element("div", {class: "grid-scroll", tabindex: "0", role: "region", "aria-label": say("Matrix of hosts and checks")});
  const earlier = element("button", {type: "button", onclick: () => turn(-1)}, say("Earlier rows"));
  const later = element("button", {type: "button", onclick: () => turn(1)}, say("Later rows"));
  const legend = element("ul", {class: "legend"}, ...states.map((state) => element("li", {},
    element("span", {class: `sign state-${state}`, "aria-hidden": "true"}, GRID_SIGNS[state] || " "), ` ${grid.states[state]}`)));
  const isJob = (host) => host === 0 && grid.job, isForeign = (host) => host >= grid.hosts.length - grid.foreign;
  let page = 0, rows = [], shown = [];
  place.append(element("div", {class: "controls"}, labelled(say("Hosts"), hostSearch), labelled(say("Checks"), checkSearch),
    labelled(say("State"), stateChoice), labelled(say("Area"), areaChoice),
    element("label", {class: "tick-box"}, notableOnly, say("only what is not as it should be")),
    element("label", {class: "tick-box"}, together, say("equal hosts in one row"))),
  count, readout, box, element("div", {class: "controls pager"}, earlier, later), legend);
  if (grid.cut) place.append(element("p", {}, say("Some messages are left out here; the JSON report has all.")));

  function update() {
    const hostMatches = nameFilter(hostSearch.value), checkMatches = nameFilter(checkSearch.value);
    const wanted = stateChoice.value || (notableOnly.checked ? NOTABLE : "");
    const has = (letter) => !wanted || wanted.includes(letter);
    let hosts = grid.hosts.map((_, number) => number).filter((host) => hostMatches(grid.hosts[host]));
    shown = grid.checks.map((_, number) => number).filter((check) => checkMatches(grid.checks[check][0])
      && (areaChoice.value === "" || grid.checks[check][1] === Number(areaChoice.value))
      && hosts.some((host) => has(columns[check][host])));
    hosts = hosts.filter((host) => shown.some((check) => has(columns[check][host])));
    const groups = new Map();
    for (const host of hosts) {
      const key = together.checked && !isJob(host) ? isForeign(host) + shown.map((check) => columns[check][host]).join("") : host;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(host);
    }
    rows = [...groups.values()];
    page = 0;
    count.textContent = say("hosts shown: {some} of {hosts}; rows: {rows}; checks: {shown} of {checks}", {some: hosts.filter((host) => !isJob(host)).length, hosts: grid.hosts.length - isJob(0), rows: rows.length, shown: shown.length, checks: grid.checks.length});
    draw();
  }

  function turn(by) { page += by; draw(); box.scrollTop = 0; box.focus(); }

  function draw() {
    const first = page * ROWS_ON_PAGE, visible = rows.slice(first, first + ROWS_ON_PAGE);
    earlier.disabled = page === 0;
    later.disabled = first + ROWS_ON_PAGE >= rows.length;
    if (!visible.length) { box.replaceChildren(element("p", {}, say("Nothing matches."))); return; }
    const head = element("tr", {}, element("th", {class: "corner", scope: "col"}, say("hosts (rows {first} to {last} of {rows})", {first: first + 1, last: first + visible.length, rows: rows.length})));
    let area = -1;
    for (const check of shown) {
      const [name, number] = grid.checks[check];
      head.append(element("th", {scope: "col", class: number !== area && "area", title: `${name} (${grid.areas[number]})`}, element("span", {}, name)));
      area = number;
    }
    const body = element("tbody");
    for (const [place, hosts] of visible.entries()) {
      const end = isForeign(hosts[0]) ? say(" (not in this run)") : "";
      const label = hosts.length > 1 ? `${foldedNames(hosts.map((host) => grid.hosts[host]))} (${hosts.length})` : grid.hosts[hosts[0]];
      const line = element("tr", {}, element("th", {scope: "row"}, label.length > 300 ? `${label.slice(0, 300)}… (${hosts.length})` : label + end));
      for (const [column, check] of shown.entries()) {
        const state = columns[check][hosts[0]];
        line.append(element("td", {class: `state-${state}`, tabindex: place || column ? "-1" : "0", "data-at": `${place},${column}`,
          "aria-label": grid.states[state] || say("not checked")}, GRID_SIGNS[state] || ""));
      }
      body.append(line);
    }
    box.replaceChildren(element("table", {class: "grid", role: "grid", "aria-label": say("Hosts and checks")}, element("thead", {}, head), body));
  }

  function tell(cell) {
    const [place, column] = cell.dataset.at.split(",").map(Number);
    const hosts = rows[page * ROWS_ON_PAGE + place], check = shown[column], state = columns[check][hosts[0]];
    const name = grid.checks[check][0];
    const texts = new Map();
    for (const host of hosts) for (const text of notes.get(`${check}:${host}`) || []) texts.set(text, [...(texts.get(text) || []), grid.hosts[host]]);
    const finding = [...document.querySelectorAll("article.finding")].find((one) => one.dataset.check === name);
    readout.replaceChildren(element("strong", {}, `${name}${say(": ")}${grid.states[state] || say("not checked")}`),
      ` ${say("on {where}", {where: foldedNames(hosts.map((host) => grid.hosts[host])).slice(0, 500)})} `,
      ...(finding ? [element("a", {href: `#${finding.id}`}, say("to the finding"))] : []),
      ...[...texts].slice(0, 8).map(([text, named]) => element("div", {}, texts.size > 1 ? `${foldedNames(named)}${say(": ")}${text}` : text)),
      ...(texts.size > 8 ? [element("div", {}, say("... and {count} more", {count: texts.size - 8}))] : []));
  }

  box.addEventListener("mouseover", (event) => { if (event.target.dataset.at) tell(event.target); });
  box.addEventListener("focusin", (event) => { if (event.target.dataset.at) tell(event.target); });
  box.addEventListener("click", (event) => { if (event.target.dataset.at) move(event.target); });
  box.addEventListener("keydown", (event) => {
    const at = event.target.dataset.at;
    if (!at) return;
    const [place, column] = at.split(",").map(Number);
    const steps = {ArrowUp: [place - 1, column], ArrowDown: [place + 1, column], ArrowLeft: [place, column - 1],
      ArrowRight: [place, column + 1], Home: [place, 0], End: [place, shown.length - 1]};
    const to = steps[event.key] && box.querySelector(`[data-at="${steps[event.key].join(",")}"]`);
    if (steps[event.key]) event.preventDefault();
    if (to) move(to);
  });

  function move(cell) {
    box.querySelectorAll('td[tabindex="0"]').forEach((one) => one.setAttribute("tabindex", "-1"));
    cell.setAttribute("tabindex", "0");
    cell.focus();
  }
  update();
}
