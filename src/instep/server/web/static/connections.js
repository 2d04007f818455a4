// The mixed state of switches, and the live log of a run. Pages work without it.

function showMixed() {
  for (const one of document.querySelectorAll("input[data-some]")) one.indeterminate = true;
}

// Search and level hide lines that are there already; without scripts the form asks the server.
function filterLog() {
  const search = document.querySelector("[data-log-search]")?.value.toLowerCase() ?? "";
  const level = document.querySelector("[data-log-level]")?.value ?? "";
  for (const line of document.querySelectorAll("#log .line")) {
    line.hidden = !line.textContent.toLowerCase().includes(search) || (level !== "" && line.dataset.level !== level);
  }
}

const NAMES = new Set(["connection", "run"]);
const MOST_LINES = 2000;
// characters that move a cursor or turn text round: they are shown as what they are
const TURNS = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

function visible(text) {
  return text.replace(TURNS, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function lineOf(event) {
  const shown = Object.entries(event.data).filter(([name, value]) => !NAMES.has(name) && value !== "" && value !== null);
  const level = event.data.error || event.data.reason ? "warning" : "info";
  const line = document.createElement("div");
  line.className = "line";
  line.dataset.level = level;
  const parts = [["time", event.at.slice(11, 19)], ["span", level], ["strong", event.type]];
  for (const [tag, text] of parts) {
    const part = document.createElement(tag);
    part.textContent = visible(text);
    if (tag === "span") part.className = `level ${level}`;
    if (tag === "time") {
      part.dateTime = event.at;
      part.dataset.clock = "";
    }
    line.append(part, " ");
  }
  const said = shown.map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
  line.append(visible(said.join(", ")));
  return line;
}

let source = null;

function follow() {
  const log = document.querySelector("[data-log-stream]");
  if (source && source.log !== log) {
    source.close();
    source = null;
  }
  if (!log || source) return;
  const state = document.querySelector("[data-log-state]");
  source = new EventSource(log.dataset.logStream);
  source.log = log;
  state.textContent = "connecting";
  source.onopen = () => {
    state.textContent = "live";
  };
  source.onerror = (event) => {
    const over = event.target.readyState === EventSource.CLOSED;
    state.textContent = over ? "not live: reload this page" : "connection lost, connecting again";
  };
  const add = (message) => {
    const event = JSON.parse(message.data);
    if (event.data.run !== log.dataset.logRun) return;
    log.querySelector("[data-log-empty]")?.remove();
    log.append(lineOf(event));
    document.dispatchEvent(new CustomEvent("instep:times"));
    while (log.children.length > MOST_LINES) log.firstChild.remove();
    filterLog();
    log.scrollTop = log.scrollHeight;
    if (event.type === "run.ended") {
      source?.close();
      source = null;
      state.textContent = "ended";
    }
  };
  for (const type of log.dataset.logTypes.split(" ")) source.addEventListener(type, add);
}

document.addEventListener("input", (event) => {
  if (event.target.closest("[data-log-search], [data-log-level]")) filterLog();
});
for (const type of ["DOMContentLoaded", "htmx:after:settle", "htmx:afterSettle"]) document.addEventListener(type, begin);

function begin() {
  showMixed();
  follow();
}
begin();
