// The page of an event store: what happened in a stream, the state that follows from it at any moment, commands,
// read models that are built anew, and two versions of the code on the same history.

import { act, ask, byId, element, put, renew, repeat } from "./dom.js";
import { fieldOf, valuesOf } from "./event-form.js";
import { showJob } from "./event-jobs.js";
import * as format from "./format.js";
import { mayAct, open } from "./frame.js";

const LOOK_EVERY_MS = 1000;

const page = { mayAct: false, deciders: [], stream: null, version: null, isFollowing: true, shownVersion: null, jobState: "" };
const category = () => byId("category").value;
const deciders = () => page.deciders.filter((each) => each.category === category());

open({});
mayAct.then(async (may) => {
  page.mayAct = may;
  try {
    begin(await ask("/api/event-store"));
  } catch (error) {
    put("nothing", error.message);
  }
});

function begin({ is_there, words, deciders: found, projections }) {
  put("nothing", page.mayAct || !is_there ? words : "What happened may be personal. To see it, open the address that the console printed.");
  if (!is_there || !page.mayAct) return;
  page.deciders = found;
  byId("none").hidden = true;
  byId("desk").hidden = false;
  choices("category", [...new Set(found.map((each) => each.category))]);
  choices("projection", projections);
  byId("replay-start").disabled = projections.length === 0;
  const asked = new URLSearchParams(location.search).get("stream");
  if (asked) page.stream = asked;
  const known = found.find((each) => asked?.startsWith(`${each.category}-`));
  if (known) byId("category").value = known.category;
  chooseCategory();
  repeat(LOOK_EVERY_MS, look);
}

function choices(id, names) {
  const before = byId(id).value;
  renew(byId(id), names.map((name) => element("option", { value: name, "data-name": name }, name)));
  if (names.includes(before)) byId(id).value = before;
}

// ---- which stream

byId("category").addEventListener("change", () => {
  page.stream = null;
  chooseCategory();
  look();
});
byId("stream").addEventListener("change", () => {
  page.stream = byId("stream").value;
  forget();
  look();
});

function chooseCategory() {
  const names = deciders().map((each) => each.name);
  for (const id of ["left", "right"]) choices(id, names);
  if (names.length > 1) byId("right").value = names[1];
  byId("compare-start").disabled = names.length < 2;
  choices("command", deciders()[0]?.commands.map((each) => each.name) ?? []);
  chooseCommand();
  forget();
}

function forget() {
  [page.version, page.isFollowing, page.shownVersion] = [null, true, null];
  put("ask-said", "");
}

async function look() {
  try {
    const { streams, has_more: hasMore } = await ask(`/api/event-store/streams?category=${encodeURIComponent(category())}`);
    const names = streams.map((each) => each.stream);
    if (page.stream === null) page.stream = names[0] ?? null;
    choices("stream", page.stream && !names.includes(page.stream) ? [page.stream, ...names] : names);
    if (page.stream !== null) byId("stream").value = page.stream;
    put("where", hasMore ? `the first ${format.count(names.length)} streams by name` : `${format.count(names.length)} streams`);
    if (page.stream !== null) showStream(await ask(`/api/event-store/streams/${encodeURIComponent(page.stream)}`));
    showJobs(await ask("/api/event-store/job"));
    trouble("");
  } catch (error) {
    trouble(error.message);
  }
}

function trouble(text) {
  put("state-trouble", text);
  byId("state-trouble").hidden = text === "";
}

// ---- what happened, and the moment that is looked at

function showStream({ stream, version, events, first_version: first }) {
  if (stream !== page.stream) return;
  const isNew = page.version !== version;
  page.version = version;
  page.events = new Map(events.map((each) => [each.version, each]));
  const slider = byId("moment");
  slider.max = version;
  if (page.isFollowing) slider.value = version;
  put("log-count", first > 1 ? `the newest ${format.count(events.length)} of ${format.count(version)}` : format.count(version));
  byId("log-none").hidden = events.length > 0;
  if (isNew) renew(byId("log"), [...events].reverse().map(row));
  if (isNew || page.shownVersion === null) showMoment();
}

function row(event) {
  const jump = element("button", { type: "button", class: "jump", "aria-label": `Show the state after version ${event.version}` }, format.count(event.version));
  jump.dataset.version = event.version;
  return element("tr", { "data-name": `v${event.version}` },
    element("th", { scope: "row", class: "number" }, jump),
    element("td", {}, event.type),
    element("td", { class: "says" }, words(event.data)),
    element("td", {}, format.time(event.recorded_ms)));
}

const words = (data) => Object.entries(data).map(([name, value]) => `${name} ${shown(value)}`).join(", ");
const shown = (value) => (value === null ? format.NONE : typeof value === "object" ? JSON.stringify(value) : String(value));

byId("log").addEventListener("click", (click) => {
  const version = click.target.closest("button")?.dataset.version;
  if (version === undefined) return;
  byId("moment").value = version;
  moved();
});
byId("moment").addEventListener("input", moved);

function moved() {
  page.isFollowing = Number(byId("moment").value) === page.version;
  showMoment();
}

async function showMoment() {
  const [stream, version] = [page.stream, Number(byId("moment").value)];
  page.shownVersion = version;
  const event = page.events?.get(version);
  put("moment-words", page.isFollowing ? "As it is now" : version === 0 ? "Before anything happened" : `As it was after ${event?.type ?? "that event"}${event ? `, ${format.time(event.recorded_ms)}` : ""}`);
  put("moment-version", `version ${format.count(version)} of ${format.count(page.version)}`);
  for (const line of byId("log").children) line.classList.toggle("later", Number(line.dataset.name.slice(1)) > version);
  for (const line of byId("log").children) line.classList.toggle("current", line.dataset.name === `v${version}`);
  try {
    const found = await ask(`/api/event-store/streams/${encodeURIComponent(stream)}/state?version=${version}`);
    // Another moment may have been asked for meanwhile.
    if (page.stream === stream && page.shownVersion === version) renew(byId("state"), found.fields.map(figure));
    trouble("");
  } catch (error) {
    trouble(error.message);
  }
}

function figure({ name, value, version, type }) {
  const cause = version === null ? "from the beginning" : `${type}, version ${format.count(version)}`;
  return element("div", { "data-name": name },
    element("dt", {}, name), element("dd", {}, shown(value)), element("dd", { class: "cause" }, cause));
}

// ---- commands

byId("command").addEventListener("change", chooseCommand);

function chooseCommand() {
  const command = deciders()[0]?.commands.find((each) => each.name === byId("command").value);
  put("command-doc", command?.doc ?? "");
  byId("fields").replaceChildren(...(command?.fields ?? []).map(fieldOf));
  byId("send").disabled = command === undefined;
}

byId("ask").addEventListener("submit", async (submit) => {
  submit.preventDefault();
  if (page.stream === null) return;
  byId("send").disabled = true;
  try {
    const path = `/api/event-store/streams/${encodeURIComponent(page.stream)}/commands/${encodeURIComponent(byId("command").value)}`;
    const { version, events } = await act(path, valuesOf(byId("fields")));
    const types = events.map((each) => each.type).join(", ");
    put("ask-said", events.length ? `Happened: ${types}. The stream is at version ${format.count(version)}.` : "Nothing had to happen.");
    page.isFollowing = true;
    await look();
  } catch (error) {
    put("ask-said", `Refused: ${error.message}`);
  } finally {
    byId("send").disabled = false;
  }
});

// ---- work that takes a while: one at a time, for all pages

for (const kind of ["replay", "compare"]) {
  byId(kind).addEventListener("submit", async (submit) => {
    submit.preventDefault();
    const body = kind === "replay"
      ? { projection: byId("projection").value } : { left: byId("left").value, right: byId("right").value };
    try {
      showJobs(await act(`/api/event-store/${kind}`, body));
    } catch (error) {
      put(`${kind}-said`, error.message);
    }
  });
}

function showJobs(job) {
  const text = JSON.stringify(job);
  if (text === page.jobState) return;
  page.jobState = text;
  showJob(job);
}
