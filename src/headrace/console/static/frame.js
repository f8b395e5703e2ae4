// What all pages share: the stream, the status in words, and the switch between dark and light.

import { ask, byId, put } from "./dom.js";
import * as format from "./format.js";
import { Stream } from "./stream.js";

const SPOKEN = {
  live: "Live", connecting: "Connecting", waiting: "Waiting", stalled: "Stalled: the input stands still",
  unreachable: "The broker is not reachable", failed: "The console has stopped reading",
  lost: "The console is not reachable",
};

const frame = { stats: null, connection: { lost: false, silentMs: 0, trouble: "" } };
const title = document.title;

export function currentStatus() {
  const { lost, silentMs, trouble } = frame.connection;
  if (lost) {
    const words = trouble || `console not reachable for ${format.duration(silentMs)}`;
    return { kind: "lost", words: `${words}, trying again`, since_ms: null };
  }
  return frame.stats?.status ?? { kind: "connecting", words: "connecting", since_ms: null };
}

function showStatus() {
  const status = currentStatus();
  document.body.dataset.status = status.kind;
  document.title = status.kind === "live" ? title : `${status.kind === "lost" ? "not reachable" : status.kind} · ${title}`;
  byId("status").title = status.since_ms ? `since ${format.time(status.since_ms)}` : "";
  put("status-words", status.words);
  put("status-spoken", SPOKEN[status.kind]);
}

// `on` may have stats(stats, isRestarted), alert(alert) and status(status).
export function open(on) {
  new Stream({
    stats(stats) {
      const isRestarted = frame.stats !== null && frame.stats.session !== stats.session;
      frame.stats = stats;
      on.stats?.(stats, isRestarted);
    },
    alert(alert) { on.alert?.(alert); },
    connection(connection) {
      frame.connection = connection;
      showStatus();
      on.status?.(currentStatus());
    },
  });
}

// Whether this browser was given the token.
export const mayAct = ask("/api/session").then((session) => session.may_act, () => false);

// ---- dark or light

const root = document.documentElement;
const isDark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark")) === "dark";

function nameTheme() {
  byId("theme").setAttribute("aria-label", isDark() ? "Switch to light" : "Switch to dark");
  byId("theme").title = isDark() ? "Switch to light" : "Switch to dark";
}

byId("theme").addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("headrace-theme", root.dataset.theme);
  } catch {
    // Storage may be forbidden: then it lasts as long as the page.
  }
  nameTheme();
  document.dispatchEvent(new Event("themechange"));
});
matchMedia("(prefers-color-scheme: light)").addEventListener("change", () => {
  nameTheme();
  document.dispatchEvent(new Event("themechange"));
});
nameTheme();
