// What the console does with a whole history, and how far it is.

import { byId, element, put, renew } from "./dom.js";
import * as format from "./format.js";

const KINDS = ["replay", "compare"];

export function showJob(job) {
  for (const kind of KINDS) {
    const isAtWork = job.kind === kind && job.state === "running";
    byId(`${kind}-progress`).hidden = !isAtWork;
    byId(`${kind}-start`).disabled = job.state === "running" || byId(kind).querySelector("option") === null;
  }
  if (job.state === "none") return;
  const bar = byId(`${job.kind}-progress`);
  bar.max = Math.max(job.total, 1);
  bar.value = job.done;
  put(`${job.kind}-said`, said(job));
  if (job.kind === "compare" && job.state === "done") showDifferences(job.result);
}

function said({ kind, state, done, total, result, error, took_ms: tookMs }) {
  if (state === "running") return `${format.count(done)} of ${format.count(total)} events`;
  if (state === "failed") return error;
  const events = `${format.count(done)} events in ${format.milliseconds(tookMs)}`;
  if (kind === "replay") return `${result.words} ${events}.`;
  if (result.difference_count === 0) return `Both say the same of all ${format.count(result.stream_count)} streams: ${events}.`;
  const cut = result.differences.length < result.difference_count ? ` The first ${format.count(result.differences.length)} are shown.` : "";
  const fields = result.difference_count === 1 ? "1 field differs" : `${format.count(result.difference_count)} fields differ`;
  return `${fields}, in ${format.count(result.different_stream_count)} of ${format.count(result.stream_count)} streams: ${events}.${cut}`;
}

function showDifferences({ left, right, differences }) {
  byId("compare-table").hidden = differences.length === 0;
  put("left-head", left);
  put("right-head", right);
  renew(byId("differences"), differences.map((each) => element("tr", { "data-name": `${each.stream} ${each.field}` },
    element("th", { scope: "row" }, element("a", { href: `?stream=${encodeURIComponent(each.stream)}` }, each.stream)),
    element("td", {}, each.field),
    element("td", { class: "number" }, JSON.stringify(each.left)), element("td", { class: "number" }, JSON.stringify(each.right)))));
}
