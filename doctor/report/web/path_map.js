/* Attempts and speeds between pairs, as a map from each row to each column and as a list, the worst first. */
const RAMPS = {
  light: ["#e8f1fa", "#c5dcf0", "#9cc3e3", "#f2cf8d", "#e89a4f", "#cf5f3a", "#8f1d1d"],
  dark: ["#1d3348", "#2a4b69", "#3d6d94", "#8d6b1f", "#b9691f", "#d9583a", "#ff8a80"],
};
const OUTCOME_COLOURS = {
  light: {good: "#b7e3c4", bad: "#b3261e", doubtful: "#7b2fa8", none: "#eceff2", self: "#8b949e"},
  dark: {good: "#1c5231", bad: "#ff9a92", doubtful: "#d8a6f5", none: "#252c34", self: "#57606a"},
};
const LARGEST_MAP = 4096;
const LISTED_PAIRS = 50;
const LOOKED_UP_CELLS = 5e6;

function valueText(value, unit) {
  if (unit === "s") return value >= 1 ? `${+value.toPrecision(3)} s` : value >= 1e-3 ? `${+(value * 1e3).toPrecision(3)} ms` : `${+(value * 1e6).toPrecision(3)} µs`;
  if (unit !== "B/s") return `${+value.toPrecision(3)} ${unit}`.trim();
  const [size, name] = [[1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"]].find(([size]) => value >= size) || [1, "B/s"];
  return `${+(value / size).toPrecision(3)} ${name}`;
}

function drawPathMap(place, map) {
  const number = map.labels.length;
  const layerChoice = element("select", {onchange: update}, ...map.layers.map((layer, at) => element("option", {value: at}, layer.name)));
  const search = element("input", {type: "search", placeholder: say("part of a name"), oninput: list});
  const readout = element("div", {class: "readout", role: "status"}, say("Choose a cell with the mouse, or with the arrow keys."));
  const canvas = element("canvas", {tabindex: "0", role: "application", "aria-roledescription": say("map")});
  const box = element("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": say("Map: {title}", {title: map.title})}, canvas);
  const legend = element("ul", {class: "legend"});
  const table = element("div", {class: "scroll pairs", tabindex: "0", role: "region", "aria-label": say("Pairs, the worst first: {title}", {title: map.title})});
  place.append(element("div", {class: "controls"}, labelled(say("Show"), layerChoice), labelled(say("Hosts"), search)), readout, box, legend, table);
  if (map.cut) place.append(element("p", {}, say("Some ports are left out here; the JSON report has all.")));
  const pixels = Math.max(1, Math.min(20, Math.floor(760 / number)));
  const named = pixels >= 10;
  const margin = named ? Math.min(220, 12 + 6.3 * Math.max(...map.labels.map((label) => label.length))) : 0;
  let layer, values, ordered, at = [0, number > 1 ? 1 : 0];

  function dark() {
    const theme = document.documentElement.dataset.theme;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function kindOf(letter) {
    return letter === "o" ? "good" : map.failing.includes(letter) ? "bad" : letter === "." || letter === "-" ? "none" : "doubtful";
  }

  /* From 0, as good as the middle, to 6, eight times as bad */
  function level(value) {
    const middle = ordered[Math.floor(ordered.length / 2)] || 1;
    const ratio = layer.worse > 0 ? value / middle : middle / Math.max(value, 1e-12);
    return Math.max(0, Math.min(6, Math.round(Math.log2(Math.max(ratio, 1e-9)) * 2 + 1)));
  }

  function update() {
    layer = map.layers[Number(layerChoice.value)];
    values = new Map();
    if (layer.cells) lettersOf(layer.cells).forEach((letter, cell) => {
      if (cell % number !== Math.floor(cell / number)) values.set(cell, letter);
    });
    else if (layer.pairs) {
      for (let next = 0; next < layer.pairs.length; next += 3) values.set(layer.pairs[next] * number + layer.pairs[next + 1], layer.pairs[next + 2] * layer.scale);
    } else layer.dense.split(",").forEach((text, cell) => { if (text) values.set(cell, Number(text) * layer.scale); });
    ordered = layer.cells ? [] : [...values.values()].sort((one, other) => one - other);
    draw();
    list();
  }

  function draw() {
    const scheme = dark() ? "dark" : "light", ramp = RAMPS[scheme], colours = OUTCOME_COLOURS[scheme];
    const items = layer.cells
      ? [["good", say("open")], ["bad", say("failed")], ["doubtful", say("unknown")], ["none", say("not tried")]].map(([kind, text]) => [colours[kind], text])
      : [[ramp[0], say("better than the middle")], [ramp[1], say("middle: {value}", {value: valueText(ordered[Math.floor(ordered.length / 2)], layer.unit)})], [ramp[3], say("twice as bad")], [ramp[5], say("four times")], [ramp[6], say("worse still")], [colours.none, say("not measured")]];
    legend.replaceChildren(...items.map(([colour, text]) => {
      const sign = element("span", {class: "sign", "aria-hidden": "true"}, " ");
      sign.style.backgroundColor = colour;
      return element("li", {}, sign, ` ${text}`);
    }));
    if (number > LARGEST_MAP) { box.replaceChildren(element("p", {}, say("{count} hosts are too many for a map; the list is below.", {count: number}))); return; }
    const width = margin + number * pixels, height = number * pixels + (named ? 14 : 0);
    const scale = Math.min(window.devicePixelRatio || 1, width > 2000 ? 1 : 2);
    canvas.width = width * scale; canvas.height = height * scale;
    canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d"), top = named ? 14 : 0;
    pen.scale(scale, scale);
    pen.fillStyle = colours.none;
    pen.fillRect(margin, top, number * pixels, number * pixels);
    const gap = pixels > 4 ? 1 : 0, large = Math.max(pixels - gap, 3);
    const paint = (cell, colour, side) => {
      pen.fillStyle = colour;
      pen.fillRect(margin + (cell % number) * pixels, top + Math.floor(cell / number) * pixels, side, side);
    };
    const after = [];
    for (const [cell, value] of values) {
      const bad = layer.cells ? kindOf(value) === "bad" || kindOf(value) === "doubtful" : level(value) > 3;
      if (bad) after.push([cell, value]);
      else paint(cell, layer.cells ? colours[kindOf(value)] : ramp[level(value)], pixels - gap);
    }
    for (const [cell, value] of after) paint(cell, layer.cells ? colours[kindOf(value)] : ramp[level(value)], large);
    for (let host = 0; host < number; host++) paint(host * number + host, colours.self, pixels - gap);
    if (named) {
      const style = getComputedStyle(document.documentElement);
      pen.fillStyle = style.getPropertyValue("--fg");
      pen.font = "10px system-ui, sans-serif";
      map.labels.forEach((label, host) => {
        pen.fillText(label.length > 34 ? `…${label.slice(-33)}` : label, 0, top + host * pixels + pixels / 2 + 4, margin - 6);
        if (number <= 20 || host % 5 === 0) pen.fillText(String(host), margin + host * pixels + 1, 10);
      });
    }
    canvas.setAttribute("aria-label", say("{name}: map of {count} rows and columns; the arrow keys go from cell to cell, and the list below has the worst pairs", {name: layer.name, count: number}));
    mark();
  }

  function mark() {
    if (document.activeElement !== canvas) return;
    const pen = canvas.getContext("2d");
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--link");
    pen.lineWidth = 2;
    pen.strokeRect(margin + at[1] * pixels, (named ? 14 : 0) + at[0] * pixels, Math.max(pixels, 4), Math.max(pixels, 4));
  }

  /* Of the layer of all ports: on which of them, where they are not too many to look */
  function portsOf(cell, letter) {
    const ports = layer === map.layers[0] && letter !== "o" ? map.layers.slice(1).filter((one) => one.cells) : [];
    if (!ports.length || ports.length * number * number > LOOKED_UP_CELLS) return "";
    const found = ports.filter((port) => (port.letters ||= lettersOf(port.cells))[cell] === letter).map((port) => port.name);
    return ` (${found.length === ports.length ? say("every port") : found.slice(0, 4).join(", ") + (found.length > 4 ? `, ${say("... and {count} more", {count: found.length - 4})}` : "")})`;
  }

  function textOf(value, cell) {
    if (value === undefined) return layer.cells ? say("not tried") : say("not measured");
    return layer.cells ? (map.letters[value] || say("unknown")) + portsOf(cell, value) : valueText(value, layer.unit);
  }

  function tell([row, column]) {
    const text = row === column ? say("the same") : textOf(values.get(row * number + column), row * number + column);
    readout.textContent = say("{source} to {target} ({row} to {column}): {text}", {source: map.labels[row], target: map.labels[column], row, column, text});
  }

  function list() {
    const matches = nameFilter(search.value);
    const pairs = [...values].filter(([cell, value]) => (layer.cells ? "bad doubtful".includes(kindOf(value)) : true)
      && (matches(map.labels[Math.floor(cell / number)]) || matches(map.labels[cell % number])));
    if (map.symmetric) pairs.splice(0, pairs.length, ...pairs.filter(([cell]) => Math.floor(cell / number) < cell % number));
    if (!layer.cells) pairs.sort((one, other) => layer.worse * (other[1] - one[1]));
    else pairs.sort((one, other) => kindOf(one[1]).localeCompare(kindOf(other[1])) || one[0] - other[0]);
    if (!pairs.length) { table.replaceChildren(element("p", {}, layer.cells ? say("No attempt failed, and none is unknown.") : say("Nothing matches."))); return; }
    const body = element("tbody", {}, ...pairs.slice(0, LISTED_PAIRS).map(([cell, value]) => element("tr", {},
      element("td", {}, map.labels[Math.floor(cell / number)]), element("td", {}, map.labels[cell % number]), element("td", {}, textOf(value, cell)))));
    table.replaceChildren(element("table", {class: "plain"}, element("caption", {}, (layer.cells ? say("{some} of {all} attempts that failed or are unknown", {some: Math.min(LISTED_PAIRS, pairs.length), all: pairs.length}) : say("{some} of {all} pairs, the worst first", {some: Math.min(LISTED_PAIRS, pairs.length), all: pairs.length}))),
      element("thead", {}, element("tr", {}, ...[say("from"), say("to"), layer.name].map((text) => element("th", {scope: "col"}, text)))), body));
  }

  function cellOf(event) {
    const row = Math.floor((event.offsetY - (named ? 14 : 0)) / pixels), column = Math.floor((event.offsetX - margin) / pixels);
    return row >= 0 && column >= 0 && row < number && column < number ? [row, column] : null;
  }
  canvas.addEventListener("mousemove", (event) => { const cell = cellOf(event); if (cell) tell(cell); });
  canvas.addEventListener("focus", () => { draw(); tell(at); });
  canvas.addEventListener("blur", draw);
  canvas.addEventListener("keydown", (event) => {
    const by = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    if (!by) return;
    event.preventDefault();
    at = at.map((value, axis) => Math.max(0, Math.min(number - 1, value + by[axis])));
    draw();
    tell(at);
  });
  document.addEventListener("themechange", draw);
  update();
}
