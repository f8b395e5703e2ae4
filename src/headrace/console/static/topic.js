// The page of one topic: its partitions, and its newest records as they come.

import { ask, byId, element, put, repeat } from "./dom.js";
import * as format from "./format.js";
import { open } from "./frame.js";

const name = decodeURIComponent(location.pathname.split("/").at(-1));
const path = `/api/topics/${encodeURIComponent(name)}`;
const page = { isPaused: false, newest: "" };

put("title", name);
document.title = `${name} · Headrace`;
open({});
repeat(2000, async () => {
  await showing("nothing", async () => showPartitions((await ask(path)).partitions));
  if (!page.isPaused) await showing("messages-nothing", async () => showMessages((await ask(`${path}/messages`)).messages));
});

// What goes wrong is said where the answer would stand.
async function showing(id, work) {
  try {
    await work();
  } catch (error) {
    put(id, error.message);
    byId(id).hidden = false;
  }
}

function showPartitions(partitions) {
  byId("nothing").hidden = true;
  byId("partitions").replaceChildren(...partitions.map(({ partition, first, end }) => element("tr", {},
    element("th", { scope: "row" }, String(partition)),
    element("td", { class: "number" }, format.count(first)),
    element("td", { class: "number" }, format.count(end)),
    element("td", { class: "number" }, format.count(end - first)))));
}

function showMessages(messages) {
  put("messages-nothing", "Nothing has been written to it, or all of it was deleted.");
  byId("messages-nothing").hidden = messages.length > 0;
  const newest = messages.map(({ partition, offset }) => `${partition}-${offset}`).join();
  if (newest === page.newest) return;
  page.newest = newest;
  byId("messages").replaceChildren(...messages.map(item));
}

function item(message) {
  const headers = message.headers.map(([key, value]) => `${key}: ${value ?? "null"}`).join("   ");
  return element("li", {},
    element("p", { class: "place" },
      element("time", { datetime: format.iso(message.timestamp_ms) }, format.time(message.timestamp_ms)),
      element("span", {}, `partition ${message.partition}, offset ${format.count(message.offset)}`),
      element("span", {}, format.bytes(message.size_bytes)),
      message.key === null ? element("span", { class: "none" }, "no key") : element("span", { class: "key" }, message.key)),
    message.value === null ? element("p", { class: "none" }, "no value (a tombstone)") : element("pre", {}, message.value),
    headers ? element("p", { class: "headers" }, headers) : null);
}

byId("pause").addEventListener("click", () => {
  page.isPaused = !page.isPaused;
  byId("pause").setAttribute("aria-pressed", String(page.isPaused));
  put("pause-words", page.isPaused ? "Resume" : "Pause");
});
