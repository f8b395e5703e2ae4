// The page of all topics.

import { ask, byId, element, put, repeat } from "./dom.js";
import * as format from "./format.js";
import { open } from "./frame.js";

const page = { topics: [] };

open({});
repeat(2000, async () => {
  try {
    page.topics = (await ask("/api/topics")).topics;
    show();
  } catch (error) {
    put("nothing", error.message);
    byId("nothing").hidden = false;
  }
});

function show() {
  const needle = byId("filter").value.trim().toLowerCase();
  const isAll = byId("internal").checked;
  const shown = page.topics.filter((topic) => (isAll || !topic.is_internal) && topic.name.toLowerCase().includes(needle));
  put("count", format.count(shown.length));
  put("nothing", needle ? "No topic has that in its name." : "There is no topic yet.");
  byId("nothing").hidden = shown.length > 0;
  const held = document.activeElement?.closest?.("tr")?.dataset.name;
  byId("rows").replaceChildren(...shown.map(row));
  if (held !== undefined) [...byId("rows").rows].find((each) => each.dataset.name === held)?.querySelector("a").focus();
}

function row(topic) {
  return element("tr", { "data-name": topic.name },
    element("th", { scope: "row" }, element("a", { href: `/topics/${encodeURIComponent(topic.name)}` }, topic.name)),
    element("td", { class: "number" }, format.count(topic.partition_count)),
    element("td", { class: "number" }, format.count(topic.record_count)),
    element("td", { class: "number" }, format.rate(topic.per_s)));
}

byId("filter").addEventListener("input", show);
byId("internal").addEventListener("change", show);
