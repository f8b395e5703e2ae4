// The page of pipelines: what runs, how fast, how far behind, and what went wrong.

import { act, byId, element, put, renew } from "./dom.js";
import * as format from "./format.js";
import { mayAct, open } from "./frame.js";
import { mayKill, pipelineState } from "./pipeline.js";

const page = { mayAct: false, stats: null };
mayAct.then((may) => {
  page.mayAct = may;
  if (page.stats) show(page.stats);
});

open({ stats: show });

function show(stats) {
  page.stats = stats;
  const { pipelines } = stats;
  put("count", pipelines.length ? format.count(pipelines.length) : "");
  put("nothing", "No pipeline has run with the data directory that this console was given. headrace run FILE runs one.");
  byId("none").hidden = pipelines.length > 0;
  renew(byId("pipelines"), pipelines.map((pipeline) => card(pipeline, stats)));
}

function card(pipeline, stats) {
  const facts = [
    ["mode", pipeline.mode], ["process", String(pipeline.pid)], ["since", format.time(pipeline.since_ms)],
    ["rows in", format.count(pipeline.input_row_count)], ["rows out", format.count(pipeline.output_row_count)],
    ["per second", format.rate(pipeline.per_s)], ["behind", behind(pipeline)],
    ["late rows", format.count(pipeline.late_row_count)],
    ["last batch", pipeline.batch_id === null ? format.NONE : `${pipeline.batch_id}, ${format.milliseconds(pipeline.batch_ms)}`],
    ["state", pipeline.state_row_count === null ? format.NONE : `${format.count(pipeline.state_row_count)} rows, ${format.bytes(pipeline.state_bytes)}`],
    ["watermark", pipeline.watermark_ms === null ? format.NONE : `${format.time(pipeline.watermark_ms)}, ${format.duration(Math.max(0, stats.now_ms - pipeline.watermark_ms))} behind`],
    ["restarts", format.count(pipeline.restart_count)], ["resumed", format.count(pipeline.resume_count)],
  ];
  return element("li", { class: "panel card-box", "data-name": pipeline.name },
    element("div", { class: "card-head" },
      element("h2", {}, pipeline.name),
      element("span", { class: "pill", "data-state": pipelineState(pipeline) }, pipeline.state),
      killButton(pipeline)),
    element("p", { class: "path" }, ...topics(pipeline.reads), " → ", ...topics([pipeline.writes])),
    element("dl", { class: "figures" }, ...facts.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text)))),
    pipeline.resume_reason ? element("p", { class: "advice" }, `Last resumed after: ${pipeline.resume_reason}`) : null,
    pipeline.last_error ? element("p", { class: "trouble" }, pipeline.last_error) : null,
    ...pipeline.advice.map((text) => element("p", { class: "advice" }, text)));
}

const behind = (pipeline) => (pipeline.lag === null ? format.NONE
  : `${format.count(pipeline.lag)}${pipeline.mode === "real-time" ? " since the last checkpoint" : ""}`);

function topics(names) {
  return names.flatMap((name, index) => [
    ...(index ? [", "] : []), element("a", { href: `/topics/${encodeURIComponent(name)}` }, name),
  ]);
}

function killButton(pipeline) {
  if (!page.mayAct || !pipeline.is_alive) return null;
  const button = element("button", { type: "button", class: "danger", "aria-label": `kill -9 ${pipeline.name}` }, "kill -9");
  button.addEventListener("click", async () => {
    if (!await mayKill(pipeline, page.stats)) return;
    button.disabled = true;
    try {
      const { pid } = await act(`/api/pipelines/${encodeURIComponent(pipeline.name)}/kill`);
      put("spoken", `Process ${pid} was killed`);
    } catch (error) {
      put("spoken", error.message);
    }
  });
  return button;
}
