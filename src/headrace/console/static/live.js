// The live page: puts what the stream says where it belongs.

import { AlertList } from "./alerts.js";
import { drawArea, drawBars, drawHistogram, drawLines, peak } from "./charts.js";
import { byId, put } from "./dom.js";
import * as format from "./format.js";
import { currentStatus, open } from "./frame.js";
import { alertForMap, chooseOnMap, forgetMap, showScene } from "./scene.js";

const SPEAK_EVERY_MS = 10_000;

const page = { stats: null, paused: false };
const list = new AlertList({ list: byId("rows"), template: byId("row"), onChange: onListChange, onOpen: chooseOnMap });

open({
  stats(stats, isRestarted) {
    if (isRestarted) {
      list.clear();
      forgetMap();
    }
    page.stats = stats;
    list.countMax = stats.recent_alert_count_max;
    showStats(stats);
    showScene(stats);
  },
  alert(alert) {
    list.take(alert);
    alertForMap(alert);
  },
  status(status) { showEmpty(status); },
});

// ---- the numbers

function showStats(stats) {
  const { input, alerts, latency, series } = stats;
  put("title", stats.title);
  put("where-topic", alerts.topic);
  put("where-broker", `on ${stats.bootstrap}`);
  put("input-title", input.topic.charAt(0).toUpperCase() + input.topic.slice(1));
  put("input-rate", format.rate(input.per_s));
  put("alert-rate", format.count(alerts.last_minute));
  put("latency-p50", format.count(latency.p50_ms));
  put("latency-p99", format.count(latency.p99_ms));
  put("latency-max", format.milliseconds(latency.max_ms));
  put("latency-count", format.count(latency.count));
  put("count-alerts", format.count(alerts.alert_count));
  put("count-repeats", format.count(alerts.repeat_count));
  byId("withdrawn-box").hidden = alerts.withdrawn_count === 0;
  put("count-withdrawn", format.count(alerts.withdrawn_count));
  byId("deleted-box").hidden = alerts.deleted_count === 0;
  put("count-deleted", format.count(alerts.deleted_count));
  put("count-undecodable", format.count(alerts.undecodable_count));
  const late = stats.roles.late === null ? null : stats.topics[stats.roles.late]?.end ?? 0;
  byId("late-box").hidden = late === null;
  put("count-late", format.count(late));
  byId("count-undecodable").parentElement.classList.toggle("bad", alerts.undecodable_count > 0);
  showCharts(input, latency, series, stats.series_length);
}

function showCharts(input, latency, series, length) {
  const peaks = {
    input: peak(series.input_per_s), alerts: peak(series.alerts_per_s), latency: peak(series.latency_ms_p99),
  };
  put("input-peak", peaks.input ? `peak ${format.rate(peaks.input)}/s` : "");
  put("alert-peak", peaks.alerts ? `peak ${format.rate(peaks.alerts)}/s` : "");
  put("latency-peak", peaks.latency ? `peak ${format.milliseconds(peaks.latency)}` : "");
  drawArea(byId("input-chart"), series.input_per_s, {
    length, label: `${input.topic} per second, now ${format.rate(input.per_s)}, peak ${format.rate(peaks.input)}`,
  });
  drawBars(byId("alert-chart"), series.alerts_per_s, {
    length, name: "heat", label: `Alerts per second, peak ${format.rate(peaks.alerts)}`,
  });
  drawLines(byId("latency-chart"), [
    { name: "p99", values: series.latency_ms_p99 }, { name: "p50", values: series.latency_ms_p50 },
  ], { length, label: `Latency, p50 ${format.milliseconds(latency.p50_ms)}, p99 ${format.milliseconds(latency.p99_ms)}` });
  drawHistogram(byId("spread-chart"), latency.histogram, latency.histogram_ms, {
    label: spreadInWords(latency), marks: [{ name: "p50", ms: latency.p50_ms }, { name: "p99", ms: latency.p99_ms }],
  });
}

function spreadInWords({ histogram, histogram_ms: bounds, count }) {
  if (!count) return "No latency in the last minute";
  const bars = histogram.map((value, index) => [value, bounds[index]]).filter(([value]) => value > 0);
  return bars.map(([value, ms]) => `${value} ${ms ? `up to ${ms} ms` : `above ${bounds.at(-1)} ms`}`).join(", ");
}

// ---- the list

let spokenAt = -Infinity;
let unspoken = 0;

function onListChange(added) {
  const { kept, shown, waiting } = list.counts;
  put("shown", kept === 0 ? "" : shown === kept ? format.count(kept) : `${format.count(shown)} of ${format.count(kept)}`);
  put("pause-words", !page.paused ? "Pause" : waiting ? `Resume, ${format.count(waiting)} new` : "Resume");
  byId("empty").hidden = shown > 0;
  byId("alerts").classList.toggle("bare", shown === 0);
  showEmpty(currentStatus());
  speak(added.filter((alert) => alert.live).length);
}

// Screen readers hear how many came, now and then, rather than each one.
function speak(count) {
  unspoken += count;
  if (!unspoken || performance.now() - spokenAt < SPEAK_EVERY_MS) return;
  put("spoken", `${unspoken} new ${unspoken === 1 ? "alert" : "alerts"}`);
  [spokenAt, unspoken] = [performance.now(), 0];
}

function showEmpty(status) {
  if (byId("empty").hidden) return;
  const [lead, text] = emptyWords(status);
  put("empty-lead", lead);
  put("empty-text", text);
}

function emptyWords(status) {
  const { stats } = page;
  if (list.counts.kept > 0) return ["No alert matches the filter", "Press Escape in the filter box to see all of them."];
  if (page.paused && list.counts.waiting > 0) return ["Paused", "New alerts are waiting: resume to see them."];
  if (!stats) return ["Connecting", "Waiting for the console’s first word."];
  const { input, alerts } = stats;
  if (status.kind === "live") {
    return ["No alerts yet", `${format.rate(input.per_s)} records a second come in on ${input.topic}. An alert appears here the moment a pipeline writes it to ${alerts.topic}.`];
  }
  if (status.kind === "waiting" && !alerts.exists) {
    return [`Waiting for ${alerts.topic}`, `There is no such topic on ${stats.bootstrap} yet. It appears here by itself when a pipeline starts.`];
  }
  if (status.kind === "waiting") return ["Waiting for the first record", `Nothing has been written to ${input.topic} yet.`];
  if (status.kind === "stalled") return ["No alerts yet", `And ${status.words}: is the producer running?`];
  return [status.words.charAt(0).toUpperCase() + status.words.slice(1), "This page recovers by itself."];
}

// ---- controls

function setPaused(paused) {
  page.paused = paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  list.paused = paused;
}

byId("pause").addEventListener("click", () => setPaused(!page.paused));
byId("filter").addEventListener("input", () => { list.needle = byId("filter").value; });
byId("filter").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  byId("filter").value = "";
  list.needle = "";
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    byId("filter").focus();
  } else if (event.key === "p") setPaused(!page.paused);
});

// A browser may keep what was typed when the page is loaded again.
list.needle = byId("filter").value;
