// Enhances pages that work without it: single keys, the command palette, copying, local time. Everything is delegated,
// so that parts that are swapped in need nothing.
const root = document.documentElement;
root.classList.add("js");

const places = { c: "/changes", o: "/connections", r: "/runs", w: "/rollouts", p: "/policies", n: "/notifications", s: "/settings" };
const typing = (target) => target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
const rows = () => [...document.querySelectorAll("[data-row]")];
const rowOf = (target) => target?.closest?.("[data-row]");
let waitsForPlace = 0;

function moveBy(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(rowOf(document.activeElement) ?? document.querySelector("[data-row].marked"));
  const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
  all.forEach((one) => one.classList.toggle("marked", one === next));
  (next.querySelector("[data-open]") ?? next).focus();
}

function press(key) {
  const row = rowOf(document.activeElement) ?? document.querySelector("[data-row].marked");
  const inside = row?.querySelector(`[data-key="${key}"]`);
  const found = inside ?? [...document.querySelectorAll(`[data-key="${key}"]`)].find((one) => !rowOf(one));
  if (!found) return false;
  if (found.matches("input[type=text], input[type=search], textarea")) found.focus();
  else found.click();
  return true;
}

function single(event) {
  const key = event.key;
  if (waitsForPlace && Date.now() - waitsForPlace < 1500 && places[key]) {
    waitsForPlace = 0;
    window.location.assign(places[key]);
    return true;
  }
  waitsForPlace = key === "g" ? Date.now() : 0;
  if (key === "j" || key === "k") return moveBy(key === "j" ? 1 : -1), true;
  if (key === "?") return openDialog("keys-help"), true;
  if (key === "/") return document.querySelector("input[type=search]")?.focus(), true;
  if (key === "x") {
    const box = (rowOf(document.activeElement) ?? document.querySelector("[data-row].marked"))?.querySelector("input[type=checkbox]");
    return box?.click(), Boolean(box);
  }
  if (key === "o") return rowOf(document.activeElement)?.querySelector("[data-open]")?.click(), true;
  return /^[a-z]$/.test(key) && press(key);
}

function openDialog(id) {
  const dialog = document.getElementById(id);
  if (dialog && !dialog.open) dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openDialog("palette");
    const input = document.getElementById("palette-input");
    if (input) {
      input.value = "";
      showCommands("");
    }
    return;
  }
  const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
  if (!plain || root.dataset.keys === "off" || typing(event.target) || document.querySelector("dialog[open]")) return;
  if (single(event)) event.preventDefault();
});

// The palette: places and searches, by their words.
function showCommands(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let first = true;
  for (const one of document.querySelectorAll("#palette-list li")) {
    const link = one.querySelector("a");
    const search = link.dataset.search;
    if (search) link.href = search + encodeURIComponent(text);
    const shown = search ? text.length > 0 : words.every((word) => link.textContent.toLowerCase().includes(word));
    one.hidden = !shown;
    link.classList.toggle("first", shown && first);
    if (shown) first = false;
  }
}

document.addEventListener("input", (event) => {
  if (event.target.id === "palette-input") showCommands(event.target.value);
});

document.addEventListener("submit", (event) => {
  if (event.target.id !== "palette-form") return;
  event.preventDefault();
  document.querySelector("#palette-list a.first")?.click();
});

document.addEventListener("click", (event) => {
  const copying = event.target.closest("[data-copy]");
  if (copying) {
    navigator.clipboard?.writeText(document.getElementById(copying.dataset.copy).textContent);
    copying.textContent = "Copied";
  }
  const opener = event.target.closest("[data-dialog]");
  if (opener) openDialog(opener.dataset.dialog);
  if (event.target.closest("[data-close]")) event.target.closest("dialog")?.close();
  if (event.target.closest("dialog a")) event.target.closest("dialog").close();
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// Times are those of UTC or of this browser's zone, as a person has chosen; the choice stays in this browser.
const TIMES = "instep-times";

function areLocal() {
  try {
    return localStorage.getItem(TIMES) === "local";
  } catch {
    return false;  // it stores nothing
  }
}

function exactly(at, local) {
  if (!local) return `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  const minutes = -at.getTimezoneOffset();
  const two = (number) => String(number).padStart(2, "0");
  const offset = `${minutes < 0 ? "-" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
  return `${exactly(new Date(at.valueOf() + minutes * 60000), false).slice(0, 19)} UTC${offset}`;
}

function showTimes() {
  const local = areLocal();
  for (const one of document.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    one.title = exactly(at, local);
    if ("clock" in one.dataset) one.textContent = one.title.slice(11, 19);
  }
  const choice = document.getElementById("times");
  if (choice) choice.value = local ? "local" : "UTC";
}

document.addEventListener("change", (event) => {
  if (event.target.id !== "times") return;
  try {
    localStorage.setItem(TIMES, event.target.value);
  } catch {
    // it stores nothing, and goes on with UTC
  }
  showTimes();
});
document.addEventListener("instep:times", showTimes);  // there are new ones
window.addEventListener("storage", (event) => event.key === TIMES && showTimes());

// Times ago grow while a page stands open.
function ago(at) {
  const seconds = (Date.now() - at) / 1000;
  if (Math.abs(seconds) < 45) return "just now";
  const [unit, length] = [["d", 86400], ["h", 3600], ["min", 60]].find(([, one]) => Math.abs(seconds) >= one) ?? ["min", 60];
  const amount = Math.max(1, Math.round(Math.abs(seconds) / length));
  return seconds > 0 ? `${amount} ${unit} ago` : `in ${amount} ${unit}`;
}

setInterval(() => {
  for (const one of document.querySelectorAll("time[data-ago]")) {
    const text = ago(new Date(one.dateTime));
    if (one.textContent !== text) one.textContent = text;
  }
}, 30000);

// A page that follows something says so when nobody answers; it goes on asking.
document.addEventListener("htmx:sendError", () => {
  if (document.getElementById("unreachable")) return;
  const notice = document.createElement("div");
  notice.id = "unreachable";
  notice.className = "problem";
  notice.setAttribute("role", "alert");
  notice.append("The server does not answer: what this page shows may be old. Next: try again, or check that instep server runs.");
  document.querySelector("#content h1")?.after(notice);
});
document.addEventListener("htmx:afterOnLoad", () => document.getElementById("unreachable")?.remove());

// What a person has opened stays open while its page follows a run.
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  if (event.detail.target.querySelector("details[open]")) event.detail.shouldSwap = false;
});

// The keyboard's place outlives a swap: in a part that is refreshed, the same link or button; on another page, its
// content; and where a page opens or closes something of its own, what was pressed.
const NAMED = ["id", "href", "name", "value", "data-key", "aria-label"];
let left = null;

function signature(element) {
  return { tag: element.tagName, text: element.textContent, names: NAMED.map((name) => element.getAttribute(name)) };
}

function again(part, was) {
  const like = [...part.getElementsByTagName(was.tag)].filter((one) => NAMED.every((name, at) => one.getAttribute(name) === was.names[at]));
  return like.find((one) => one.textContent === was.text) ?? like[0];
}

document.addEventListener("htmx:beforeSwap", (event) => {
  const at = document.activeElement;
  left = at && at !== document.body && event.detail.target.contains(at) ? { ...signature(at), path: window.location.pathname } : null;
});

showTimes();
document.addEventListener("htmx:afterSettle", (event) => {
  showTimes();
  const was = left;
  if (event.detail.elt === document.body) {
    const same = was?.names[0] && was.path === window.location.pathname ? document.getElementById(was.names[0]) : null;
    (same ?? document.getElementById("content"))?.focus({ preventScroll: true });
  } else if (was && (document.activeElement === document.body || document.activeElement === null)) {
    again(document, was)?.focus({ preventScroll: true });
  }
});
