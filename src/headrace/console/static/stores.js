// The page of stores: what follows the log, how far behind it is, and how the last changes travel there.

import { act, ask, byId, confirmed, element, put, renew, repeat } from "./dom.js";
import * as format from "./format.js";
import { mayAct, open } from "./frame.js";
import { pipelineState } from "./pipeline.js";

// A status is written about once a second: one that is much older is of a driver that is busy, or gone.
const OLD_MS = 10_000;

const page = { mayAct: false };

open({ stats: showButtons });
mayAct.then((may) => {
  page.mayAct = may;
  byId("keys-hint").hidden = may;
});
repeat(1000, async () => {
  try {
    show(await ask("/api/stores"));
  } catch (error) {
    put("nothing", error.message);
    byId("none").hidden = false;
  }
});

function show({ stores, changes }) {
  put("count", stores.length ? format.count(stores.length) : "");
  put("nothing", "No pipeline with the data directory that this console was given keeps a store.");
  byId("none").hidden = stores.length > 0;
  byId("travel").hidden = stores.length === 0;
  byId("no-changes").hidden = changes.length > 0;
  renew(byId("stores"), stores.map(card));
  renew(byId("travel-head"), [head(stores)]);
  renew(byId("travel-rows"), changes.map((change) => row(change, stores)));
}

function card(store) {
  const facts = [
    ["rows behind", format.count(store.lag_rows)], ["bytes behind, about", format.bytes(store.lag_bytes)],
    ["seconds behind", store.lag_s === null ? format.NONE : format.number(store.lag_s)],
    ["changes seen to arrive", format.count(store.arrived_count)],
    ["took, in the middle", format.milliseconds(store.took_ms_p50)], ["took, at most", format.milliseconds(store.took_ms_max)],
    ["told", `${format.duration(store.told_ms_ago)} ago`],
  ];
  return element("li", { class: "panel card-box", "data-name": store.pipeline },
    element("div", { class: "card-head" },
      element("h2", {}, store.pipeline),
      element("span", { class: "pill", "data-state": pipelineState(store) }, store.state),
      element("span", { class: "hint" }, store.kind)),
    element("p", { class: "path" }, store.reads.join(", "), " → ", store.name),
    element("dl", { class: "figures" }, ...facts.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text)))),
    store.state !== "running" && store.last_error ? element("p", { class: "trouble" }, store.last_error) : null,
    store.state === "running" && store.told_ms_ago > OLD_MS
      ? element("p", { class: "advice" }, "Its driver has said nothing for a while: these numbers are old.") : null);
}

function head(stores) {
  return element("tr", {},
    ...["Committed", "Change", "Key"].map((text) => element("th", { scope: "col" }, text)),
    ...stores.map((store) => element("th", { scope: "col", class: "number" }, store.pipeline)));
}

function row(change, stores) {
  const place = `${change.topic}-${change.partition}-${change.offset}`;
  const table = change.topic.split(".").at(-1);
  return element("tr", { "data-name": place },
    element("th", { scope: "row", title: place }, format.time(change.committed_ms)),
    element("td", {}, `${change.operation ?? "record"} · ${table}`),
    element("td", {}, change.key ?? format.NONE),
    ...stores.map((store) => cell(change.stores[store.pipeline])));
}

// A store that does not follow the change's topic has nothing to get.
function cell(arrival) {
  if (!arrival) return element("td", { class: "number" }, "");
  if (!arrival.has) return element("td", { class: "number" }, element("span", { class: "pill", "data-state": "soon" }, "on its way"));
  return element("td", { class: "number" }, arrival.took_ms === null ? "there" : format.milliseconds(arrival.took_ms));
}

// ---- buttons: something that whoever reads their topic does, after a question

function showButtons({ buttons }) {
  byId("buttons").hidden = buttons.length === 0;
  byId("buttons-hint").hidden = page.mayAct;
  const made = byId("button-list").childElementCount === buttons.length;
  if (!made) byId("button-list").replaceChildren(...buttons.map(button));
  for (const each of byId("button-list").children) each.disabled = !page.mayAct;
  const pressed = buttons.filter((each) => each.presses_ms.length > 0 && each.advice);
  byId("advice").hidden = pressed.length === 0;
  put("advice", pressed.map(advice).join("\n\n"));
}

function button({ name, label, question }) {
  const made = element("button", { type: "button", class: "danger", "data-name": name }, label);
  made.addEventListener("click", async () => {
    if (!await confirmed(question, label)) return;
    try {
      const { pressed_ms } = await act(`/api/buttons/${encodeURIComponent(name)}`);
      put("buttons-said", `Asked for at ${format.time(pressed_ms)}.`);
    } catch (error) {
      put("buttons-said", error.message);
    }
  });
  return made;
}

// For the last time that it was pressed; what was done before has a moment of its own.
function advice({ advice: text, presses_ms }) {
  const moments = presses_ms.map(format.iso);
  const told = text.replaceAll("{moment}", moments.pop());
  return moments.length ? `${told}\nIt was pressed before, at ${moments.join(", ")}: what went then is in the log before that moment.` : told;
}
