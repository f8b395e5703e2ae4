// What stands beside the alerts on the live page: controls, the crash test, the flow, event time and the map.

import { drawEventTime, drawMap } from "./charts.js";
import { act, ask, byId, element, put, renew } from "./dom.js";
import * as format from "./format.js";
import { mayAct } from "./frame.js";
import { mayKill, pipelineState } from "./pipeline.js";

const MAP_ALERT_COUNT_MAX = 60;
const EVENT_TIME_SPAN_MS = 90_000;
const LATE_SPAN_MS_MAX = 600_000;

const scene = { stats: null, mayAct: false, isKilling: false, isCounting: false, alerts: new Map(), chosen: null };
mayAct.then((may) => {
  scene.mayAct = may;
  if (scene.stats) showScene(scene.stats);
});

export function showScene(stats) {
  scene.stats = stats;
  const parts = {
    controls: stats.controls.length > 0, crash: stats.pipelines.length > 0,
    flow: stats.pipelines.length > 0, time: stats.event_time.is_known, map: stats.event_time.has_places,
  };
  for (const [id, isShown] of Object.entries(parts)) byId(id).hidden = !isShown;
  byId("side").hidden = !Object.values(parts).some(Boolean);
  if (parts.controls) showControls(stats.controls);
  if (parts.crash) showCrash(stats);
  if (parts.flow) showFlow(stats);
  if (parts.time) showEventTime(stats.event_time, stats.now_ms);
  if (parts.map) showMap(stats.event_time.places);
}

// ---- controls

const sliders = new Map(); // name -> {input, output, isHeld}

function showControls(controls) {
  byId("controls-hint").hidden = scene.mayAct;
  for (const control of controls) {
    const slider = sliders.get(control.name) ?? newSlider(control);
    slider.input.disabled = !scene.mayAct;
    if (!slider.isHeld) setSlider(slider, control, control.value);
  }
}

function newSlider(control) {
  const id = `control-${control.name}`;
  const input = element("input", { type: "range", id, min: control.minimum, max: control.maximum, step: control.step });
  const output = element("output", { for: id });
  byId("sliders").append(element("div", { class: "slider" },
    element("label", { for: id }, control.label), output, input));
  const slider = { input, output, isHeld: false };
  sliders.set(control.name, slider);
  input.addEventListener("input", () => {
    slider.isHeld = true;
    output.textContent = inWords(control, input.value);
  });
  input.addEventListener("change", async () => {
    try {
      await act(`/api/controls/${encodeURIComponent(control.name)}`, { value: Number(input.value) });
    } catch (error) {
      put("spoken", error.message);
      output.textContent = error.message;
      await new Promise((resolve) => { setTimeout(resolve, 3000); });
    }
    slider.isHeld = false;
  });
  return slider;
}

const inWords = (control, value) => `${format.number(Number(value))}${control.unit ? ` ${control.unit}` : ""}`;

function setSlider(slider, control, value) {
  if (slider.input.value !== String(value)) slider.input.value = value;
  slider.output.textContent = inWords(control, value);
  slider.input.setAttribute("aria-valuetext", slider.output.textContent);
}

// ---- the crash test

const runs = (pipeline) => pipeline.is_alive && pipeline.state === "running";
// One driver runs pipelines and their dead letters: it is called by a pipeline's name where it has one.
const toKill = (pipelines) => pipelines.find((each) => runs(each) && !each.name.includes(".dead-letters")) ?? pipelines.find(runs);

function showCrash(stats) {
  const target = toKill(stats.pipelines);
  byId("kill").disabled = !scene.mayAct || !target || scene.isKilling;
  byId("kill").title = !scene.mayAct ? "Open the address that the console printed" : target ? `Kill process ${target.pid}, the driver of ${target.name}` : "No driver runs now";
  put("kill-words", target ? `kill -9 ${target.name}` : "kill -9");
  byId("recount").disabled = !scene.mayAct || scene.isCounting;
  byId("incidents").replaceChildren(...stats.incidents.slice(0, 3).map((incident) => incidentItem(incident, stats)));
}

function incidentItem(incident, stats) {
  const after = (ms) => `${((ms - incident.died_ms) / 1000).toFixed(1)} s`;
  const step = (isDone, text) => element("li", { class: isDone ? "done" : "open" }, text);
  const down = incident.running_ms === null;
  return element("li", {},
    element("p", { class: "incident-title" }, `${incident.by_hand ? "Killed" : "Died"} at ${format.time(incident.died_ms)}, process ${incident.pid}`),
    element("ol", {},
      step(!down, down ? `down for ${format.duration(Math.max(0, stats.now_ms - incident.died_ms))}` : `running again after ${after(incident.running_ms)}`),
      step(incident.first_alert_ms !== null, incident.first_alert_ms === null ? "no alert yet" : `first alert after ${after(incident.first_alert_ms)}`),
      step(incident.caught_up_count > 0, `${format.count(incident.caught_up_count)} alerts of what came while it was down`),
      step(!down, `since then ${format.count(incident.alerts_since)} alerts; ${format.count(incident.repeats_since)} came again and counted once`)));
}

byId("kill").addEventListener("click", async () => {
  const target = scene.stats && toKill(scene.stats.pipelines);
  if (!target || !await mayKill(target, scene.stats)) return;
  scene.isKilling = true;
  byId("kill").disabled = true;
  try {
    const { pid } = await act(`/api/pipelines/${encodeURIComponent(target.name)}/kill`);
    put("crash-said", `Process ${pid} was killed.`);
  } catch (error) {
    put("crash-said", error.message);
  }
  scene.isKilling = false;
});

byId("recount").addEventListener("click", async () => {
  scene.isCounting = true;
  byId("recount").disabled = true;
  put("crash-said", "Counting the topic from its beginning.");
  try {
    const found = await ask("/api/recount");
    const seen = (await ask("/api/stats")).alerts;
    put("crash-said", `${found.is_complete ? "" : "So far: "}${format.count(found.record_count)} records on ${seen.topic} are ${format.count(found.alert_count)} alerts, ${format.count(found.repeat_count)} that came again, ${found.withdrawn_count ? `${format.count(found.withdrawn_count)} that withdraw what was not there, ` : ""}${found.deleted_count ? `${format.count(found.deleted_count)} that say that a row is gone, ` : ""}and ${format.count(found.undecodable_count)} that can’t be decoded. This page has seen ${format.count(seen.alert_count)} alerts.`);
  } catch (error) {
    put("crash-said", error.message);
  }
  scene.isCounting = false;
  byId("recount").disabled = !scene.mayAct;
});

// ---- the flow

function showFlow(stats) {
  renew(byId("flow-list"), stats.pipelines.map((pipeline) => element("li", { "data-name": pipeline.name },
    element("div", { class: "ends" }, ...pipeline.reads.map((name) => topicNode(name, stats))),
    element("span", { class: "arrow", "aria-hidden": "true" }, "→"),
    pipelineNode(pipeline),
    element("span", { class: "arrow", "aria-hidden": "true" }, "→"),
    element("div", { class: "ends" }, topicNode(pipeline.writes, stats)))));
}

function topicNode(name, stats) {
  const topic = stats.topics[name];
  return element("a", { class: "node", href: `/topics/${encodeURIComponent(name)}`, title: name, "data-name": name },
    element("span", { class: "name" }, name),
    element("span", { class: "rate" }, topic ? `${format.rate(topic.per_s)}/s` : "no such topic"));
}

function pipelineNode(pipeline) {
  return element("a", { class: "node work", href: "/pipelines", title: pipeline.name, "data-state": pipelineState(pipeline) },
    element("span", { class: "name" }, pipeline.name),
    element("span", { class: "rate" }, runs(pipeline) ? `${format.rate(pipeline.per_s)}/s, ${lag(pipeline)}` : pipeline.state));
}

// In real-time mode a batch lasts minutes, and what it has done is known when it ends.
const lag = (pipeline) => (pipeline.mode === "real-time" ? "real-time" : `lag ${format.count(pipeline.lag)}`);

// ---- event time

function showEventTime(time, nowMs) {
  const from = nowMs - EVENT_TIME_SPAN_MS;
  const points = time.points.filter(([at]) => at >= from);
  const marks = time.watermarks.filter(([at]) => at >= from);
  const least = Math.min(from, ...points.map(([, event]) => event), ...marks.map(([, mark]) => mark));
  const floor = Math.max(least, nowMs - EVENT_TIME_SPAN_MS - LATE_SPAN_MS_MAX);
  const mark = time.watermarks.at(-1)?.[1];
  const words = time.count === 0 ? "No event in the last 90 s."
    : `Half of the events come within ${delay(time.delay_p50_ms)}, 99 of 100 within ${delay(time.delay_p99_ms)}, the latest after ${delay(time.delay_max_ms)}.${mark === undefined ? "" : ` The watermark is ${delay(nowMs - mark)} behind.`}`;
  put("time-words", words);
  drawEventTime(byId("time-chart"), { points, watermarks: marks, from, to: nowMs, floor }, words);
}

const delay = (ms) => (ms < 10_000 ? `${(Math.max(0, ms) / 1000).toFixed(1)} s` : format.duration(ms));

// ---- the map

export function alertForMap(alert) {
  const places = (alert.events ?? []).map(({ place }) => place).filter(Boolean);
  if (places.length === 0) return;
  scene.alerts.set(alert.position, places.at(-1));
  while (scene.alerts.size > MAP_ALERT_COUNT_MAX) scene.alerts.delete(scene.alerts.keys().next().value);
}

export function chooseOnMap(alert) {
  scene.chosen = alert;
  if (scene.stats?.event_time.has_places) showMap(scene.stats.event_time.places);
}

export function forgetMap() {
  scene.alerts.clear();
  scene.chosen = null;
}

function showMap(places) {
  const chosen = scene.chosen?.events?.map(({ place }) => place).filter(Boolean) ?? [];
  const words = chosen.length ? `${scene.chosen.words}: ${chosen.map(format.place).join(", then ")}${scene.chosen.home ? `; home is ${format.place(scene.chosen.home)}` : ""}` : "Events of the last 90 s, and the newest alerts. Open an alert to see its places.";
  put("map-words", words);
  drawMap(byId("map-chart"), {
    places, alerts: [...scene.alerts.values()], chosen: chosen.length ? chosen : null, home: scene.chosen?.home ?? null,
  }, words);
}
