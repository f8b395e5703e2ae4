// The list of alerts. Payloads are text and only ever become text nodes: nothing here parses markup.
//
// A row is named by its position: the same alert coming again changes its row in place. Rows stand in the
// order of position, the newest on top, and as many are kept as the console keeps.

import { element } from "./dom.js";
import * as format from "./format.js";

const SLIDE_COUNT_MAX = 12; // more at once is a flood: they just appear
const SLOW_MS = 1000;

export class AlertList {
  #rows = new Map(); // position -> {alert, item}
  #waiting = new Map(); // position -> alert, not yet on the page
  #frame = 0;
  #paused = false;
  #needle = "";
  #countMax = 200;
  #list;
  #template;
  #onChange;
  #onOpen;

  // `onOpen` is called with the alert whose details were opened, or null when they were closed.
  constructor({ list, template, onChange, onOpen }) {
    this.#list = list;
    this.#template = template;
    this.#onChange = onChange;
    this.#onOpen = onOpen;
  }

  get counts() {
    let shown = 0;
    for (const { item } of this.#rows.values()) if (!item.hidden) shown += 1;
    const fresh = [...this.#waiting.keys()].filter((position) => !this.#rows.has(position)).length;
    return { kept: this.#rows.size, shown, waiting: fresh };
  }

  set countMax(value) { this.#countMax = value; }

  set paused(value) {
    this.#paused = value;
    this.#schedule();
    this.#onChange([]);
  }

  set needle(text) {
    this.#needle = text.trim().toLowerCase();
    for (const { alert, item } of this.#rows.values()) item.hidden = !matches(alert, this.#needle);
    this.#onChange([]);
  }

  take(alert) {
    this.#waiting.set(alert.position, alert);
    while (this.#waiting.size > this.#countMax) this.#waiting.delete(this.#waiting.keys().next().value);
    if (this.#paused) this.#onChange([]);
    else this.#schedule();
  }

  clear() {
    this.#waiting.clear();
    this.#rows.clear();
    this.#list.replaceChildren();
    this.#onChange([]);
  }

  #schedule() {
    this.#frame ||= requestAnimationFrame(() => this.#flush());
  }

  #flush() {
    this.#frame = 0;
    if (this.#paused || this.#waiting.size === 0) return;
    const alerts = [...this.#waiting.values()].sort((one, other) => one.position - other.position);
    this.#waiting.clear();
    const added = alerts.filter((alert) => this.#put(alert));
    this.#trim();
    if (added.length <= SLIDE_COUNT_MAX) for (const { position } of added) this.#slide(position);
    this.#onChange(added);
  }

  // Returns whether the row is new.
  #put(alert) {
    const former = this.#rows.get(alert.position);
    const item = former?.item ?? this.#template.content.firstElementChild.cloneNode(true);
    fill(item, alert);
    item.hidden = !matches(alert, this.#needle);
    this.#rows.set(alert.position, { alert, item });
    if (former) return false;
    item.dataset.position = alert.position;
    item.firstElementChild.addEventListener("toggle", ({ target }) => this.#toggled(alert.position, target.open));
    let next = this.#list.firstElementChild;
    while (next && Number(next.dataset.position) > alert.position) next = next.nextElementSibling;
    this.#list.insertBefore(item, next);
    return true;
  }

  #toggled(position, isOpen) {
    this.#onOpen(isOpen ? this.#rows.get(position)?.alert ?? null : null);
  }

  #trim() {
    while (this.#rows.size > this.#countMax) {
      const oldest = this.#list.lastElementChild;
      this.#rows.delete(Number(oldest.dataset.position));
      oldest.remove();
    }
  }

  #slide(position) {
    const row = this.#rows.get(position);
    if (row && row.alert.live) row.item.classList.add("fresh");
  }
}

// A plain substring of what the row shows. A whole card number finds its card by the last four characters.
export function matches(alert, needle) {
  if (!needle) return true;
  const seen = [alert.words, alert.rule, alert.card, alert.reason].filter(Boolean);
  if (seen.some((text) => text.toLowerCase().includes(needle))) return true;
  return needle.length > 4 && Boolean(alert.card) && alert.card.toLowerCase().endsWith(` ${needle.slice(-4)}`);
}

function fill(item, alert) {
  const part = (name) => item.querySelector(`.${name}`);
  const broken = alert.kind === "undecodable";
  const when = alert.at_ms ?? alert.timestamp_ms ?? alert.received_ms;
  item.classList.toggle("undecodable", broken);
  item.classList.toggle("withdrawn", !broken && !alert.holds);
  part("when").textContent = format.time(when);
  part("when").dateTime = format.iso(when);
  part("words").textContent = broken ? "Record that can’t be decoded" : alert.words;
  part("badge").textContent = badge(alert, broken);
  part("card").textContent = alert.card ?? "";
  part("amount").textContent = broken || alert.total === null ? "" : format.amount(alert.total);
  fillLatency(part("latency"), alert, broken);
  fillEvidence(part("evidence"), alert, broken);
  part("facts").replaceChildren(...facts(alert, broken).flatMap(fact));
}

function badge(alert, broken) {
  if (!broken && !alert.holds) return "withdrawn";
  return alert.sighting_count > 1 ? `came ${alert.sighting_count} times` : "";
}

function fillLatency(cell, alert, broken) {
  const known = alert.latency_ms !== null;
  cell.textContent = known ? format.milliseconds(alert.latency_ms) : broken ? "" : alert.live ? format.NONE : "earlier";
  cell.title = known || broken || alert.live ? "" : "It was on the topic before this console looked";
  cell.classList.toggle("slow", known && alert.latency_ms >= SLOW_MS);
  cell.classList.toggle("unknown", !known);
}

function fillEvidence(box, alert, broken) {
  const [title, list, table] = [box.querySelector("h3"), box.querySelector("ul"), box.querySelector("table")];
  if (broken) {
    title.textContent = "What it holds";
    list.replaceChildren(element("li", {}, alert.preview || "(nothing)"));
    return;
  }
  const ids = alert.evidence.length > 0 ? alert.evidence : [alert.trigger].filter(Boolean);
  const isFull = alert.events.length > 0;
  box.hidden = ids.length === 0 && !isFull;
  title.textContent = `Evidence: ${format.count(Math.max(alert.evidence_count, ids.length, alert.events.length))} transactions`;
  [list.hidden, table.hidden] = [isFull, !isFull];
  if (isFull) table.tBodies[0].replaceChildren(...alert.events.map((event) => eventRow(event, alert)));
  else list.replaceChildren(...ids.map((id) => chip(id, alert)));
}

function chip(id, alert) {
  const made = element("li", {}, id);
  made.classList.toggle("trigger", id === alert.trigger);
  if (id === alert.trigger) made.title = "The transaction that made the rule fire";
  return made;
}

function eventRow(event, alert) {
  const row = element("tr", { title: event.name },
    element("td", {}, format.time(event.at_ms)),
    element("td", {}, event.what ?? event.name ?? ""),
    element("td", {}, event.place ? format.place(event.place) : ""),
    element("td", { class: "number" }, event.amount === null ? "" : format.amount(event.amount)));
  row.classList.toggle("trigger", event.name !== null && event.name === alert.trigger);
  return row;
}

function facts(alert, broken) {
  const position = `partition ${alert.partition}, offset ${format.count(alert.offset)}`;
  const seen = alert.sighting_count > 1 ? [["seen", `${alert.sighting_count} times`]] : [];
  if (broken) return [["problem", alert.reason], ["on the topic", position], ["received", format.iso(alert.received_ms)]];
  return [
    ["alert id", alert.alert_id], ["rule", alert.rule], ["triggered by", alert.trigger],
    ["happened", format.iso(alert.at_ms)], ["sent", format.iso(alert.sent_at_ms)],
    ["received", format.iso(alert.received_ms)], ["on the topic", position], ...seen, ...alert.other,
  ].filter(([, text]) => text);
}

function fact([name, text]) {
  return [element("dt", {}, name), element("dd", {}, text)];
}
