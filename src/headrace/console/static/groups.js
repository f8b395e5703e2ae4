// The page of consumer groups.

import { ask, byId, element, put, renew, repeat } from "./dom.js";
import * as format from "./format.js";
import { open } from "./frame.js";

open({});
repeat(3000, async () => {
  try {
    show((await ask("/api/groups")).groups);
  } catch (error) {
    put("nothing", error.message);
    byId("none").hidden = false;
  }
});

function show(groups) {
  put("count", groups.length ? format.count(groups.length) : "");
  put("nothing", "No consumer group has committed anything yet.");
  byId("none").hidden = groups.length > 0;
  renew(byId("groups"), groups.map(card));
}

function card(group) {
  const lags = group.partitions.map(({ lag }) => lag).filter((lag) => lag !== null);
  const members = group.members.length === 1 ? "1 member" : `${format.count(group.members.length)} members`;
  return element("li", { class: "panel card-box", "data-name": group.name },
    element("div", { class: "card-head" },
      element("h2", {}, group.name),
      element("span", { class: "pill", "data-state": group.state === "stable" ? "good" : "off" }, group.state.replaceAll("_", " ")),
      element("span", { class: "hint" }, `${members}, lag ${format.count(lags.reduce((sum, lag) => sum + lag, 0))}`)),
    group.partitions.length === 0 ? null : element("div", { class: "wide" }, element("table", {},
      element("thead", {}, element("tr", {}, ...["Topic", "Partition", "Committed", "Lag"].map((text, index) =>
        element("th", { scope: "col", class: index ? "number" : null }, text)))),
      element("tbody", {}, ...group.partitions.map(row)))));
}

function row({ topic, partition, committed, lag }) {
  return element("tr", { "data-name": `${topic}-${partition}` },
    element("th", { scope: "row" }, element("a", { href: `/topics/${encodeURIComponent(topic)}` }, topic)),
    element("td", { class: "number" }, String(partition)),
    element("td", { class: "number" }, format.count(committed)),
    element("td", { class: "number" }, format.count(lag)));
}
