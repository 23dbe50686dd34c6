"use strict";
const reportData = JSON.parse(document.getElementById("data").textContent);
const announcer = document.getElementById("said");

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== undefined) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/* A text in the language of the page, its {name} filled in */
function say(text, values) {
  return ((reportData.words || {})[text] || text).replace(/\{(\w+)\}/g, (all, name) => (values && name in values ? values[name] : all));
}

function announce(text) { announcer.textContent = text; }

/* "3pE2p" as an array of letters */
function lettersOf(runs) {
  const letters = [];
  for (const [, count, letter] of runs.matchAll(/(\d*)(\D)/gs)) {
    for (let left = Number(count || 1); left > 0; left--) letters.push(letter);
  }
  return letters;
}

/* "0-2,7" as an array of numbers */
function numbersOf(ranges) {
  return ranges.split(",").filter(Boolean).flatMap((range) => {
    const [low, high] = range.split("-").map(Number);
    return Array.from({length: (high ?? low) - low + 1}, (_, place) => low + place);
  });
}

/* Names that differ by one number as "node[1-3,7]" */
function foldedNames(names) {
  const groups = new Map();
  for (const name of names) {
    const match = /^(.*?)(\d{1,9})(\D*)$/.exec(name);
    const key = match ? `${match[1]}\n${match[3]}\n${match[2].startsWith("0") ? match[2].length : 0}` : `${name}\n\n-`;
    if (!groups.has(key)) groups.set(key, []);
    if (match) groups.get(key).push(match[2]);
  }
  return [...groups].map(([key, digits]) => {
    const [head, tail] = key.split("\n");
    if (digits.length < 2) return head + (digits[0] || "") + tail;
    const runs = [];
    for (const text of digits) {
      const last = runs[runs.length - 1];
      if (last && Number(text) === Number(last[1]) + 1) last[1] = text;
      else runs.push([text, text]);
    }
    return `${head}[${runs.map(([low, high]) => (low === high ? low : `${low}-${high}`)).join(",")}]${tail}`;
  }).join(",");
}

function labelled(text, control) { return element("label", {}, text, control); }

/* Whether a name has one of the words, which commas or spaces part */
function nameFilter(text) {
  const words = text.toLowerCase().split(/[\s,]+/).filter(Boolean);
  return (name) => !words.length || words.some((word) => name.toLowerCase().includes(word));
}

function themeButton() {
  const button = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  let current = "auto";
  try { current = localStorage.getItem("doctor-theme") || "auto"; } catch { /* a page of a file may have no storage */ }
  const apply = () => {
    if (current === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = current;
    button.textContent = [say("Theme: auto"), say("Theme: light"), say("Theme: dark")][themes.indexOf(current)];
    document.dispatchEvent(new Event("themechange"));
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    current = themes[(themes.indexOf(current) + 1) % themes.length];
    try { localStorage.setItem("doctor-theme", current); } catch { /* as above */ }
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("themechange")));
  if (themes.includes(current) && current !== "auto") apply();
}

function printing() {
  const button = document.getElementById("print");
  button.hidden = false;
  button.addEventListener("click", () => window.print());
  let opened = [], theme;
  const draw = (chosen) => {
    if (chosen) document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
    document.dispatchEvent(new Event("themechange"));
  };
  addEventListener("beforeprint", () => {
    theme = document.documentElement.dataset.theme;
    draw("light");
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => { opened.forEach((one) => { one.open = false; }); opened = []; draw(theme); });
}

/* On a phone the details of a warning are closed until it is asked for */
function folding() {
  if (!matchMedia("(max-width: 40rem)").matches) return;
  document.querySelectorAll(".is-warn > .body").forEach((body) => { body.open = false; });
  const open = () => document.getElementById(location.hash.slice(1))?.querySelector(":scope > .body")?.setAttribute("open", "");
  addEventListener("hashchange", open);
  open();
}

async function copyText(text) {
  try { await navigator.clipboard.writeText(text); return true; } catch { /* no permission, or no secure origin */ }
  const area = element("textarea", {"aria-hidden": "true"});
  area.value = text;
  document.body.append(area);
  area.select();
  let done = false;
  try { done = document.execCommand("copy"); } catch { /* told below */ }
  area.remove();
  return done;
}

function copyButtons() {
  const commands = [...document.querySelectorAll(".fix pre code")];
  for (const code of document.querySelectorAll(".fix p code")) if (/\s/.test(code.textContent.trim())) commands.push(code);
  for (const code of commands) {
    const text = code.textContent;
    const button = element("button", {type: "button", class: "copy", "aria-label": say("Copy: {text}", {text: text.slice(0, 120)})}, say("Copy"));
    button.addEventListener("click", async () => {
      const done = await copyText(text);
      button.textContent = done ? say("Copied") : say("Not copied");
      announce(done ? say("Copied") : say("The browser does not allow to copy"));
      button.focus();
      setTimeout(() => { button.textContent = say("Copy"); }, 2000);
    });
    (code.closest("pre") || code).after(button);
  }
}

function start() {
  themeButton();
  folding(); printing();
  copyButtons();
  if (reportData.grid) drawCheckGrid(document.getElementById("check-grid"), reportData.grid);
  for (const place of document.querySelectorAll(".path-map")) {
    const map = (reportData.maps || {})[place.dataset.map];
    if (map && map.layers.length) drawPathMap(place, map);
  }
}
document.addEventListener("DOMContentLoaded", start);
