// The fields of a command, as a form has them.

import { element } from "./dom.js";

const INPUTS = { integer: { type: "number", step: "1" }, number: { type: "number", step: "any" }, moment: { type: "datetime-local", step: "1" }, flag: { type: "checkbox" }, text: { type: "text" } };

export function fieldOf({ name, kind, is_needed: isNeeded, hint }) {
  const input = element("input", { ...INPUTS[kind] ?? INPUTS.text, name, "data-kind": kind, autocomplete: "off" });
  // A moment that is left empty is the one at which it is sent.
  if (isNeeded && kind !== "moment" && kind !== "flag") input.required = true;
  const words = kind === "moment" ? "now, if left empty" : hint;
  return element("label", { class: "field" }, element("span", {}, name), input,
    words ? element("span", { class: "hint" }, words) : null);
}

export function valuesOf(form) {
  const filled = [...form.querySelectorAll("input")].map((input) => [input.name, valueOf(input)]);
  return Object.fromEntries(filled.filter(([, value]) => value !== undefined));
}

function valueOf(input) {
  const kind = input.dataset.kind;
  if (kind === "flag") return input.checked;
  if (kind === "moment") return (input.value ? new Date(input.value) : new Date()).toISOString();
  if (input.value === "") return input.required ? "" : undefined;
  if (kind === "integer" || kind === "number") return Number(input.value);
  return kind === "json" ? JSON.parse(input.value) : input.value;
}
