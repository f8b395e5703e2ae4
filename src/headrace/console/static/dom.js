// Small helpers to build a page. Text only ever becomes text nodes: nothing here parses markup.

export const byId = (id) => document.getElementById(id);

export const put = (id, text) => { if (byId(id).textContent !== text) byId(id).textContent = text; };

// element("td", {class: "number"}, "12", other): strings become text.
export function element(kind, attributes = {}, ...children) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

// Makes a node hold these children, and keeps those of its own that are the same: of the same kind, and with the
// same data-name where there is one. So focus and what listens stay where they are when numbers change.
export function renew(parent, children) {
  children.forEach((child, index) => {
    const later = [...parent.childNodes].slice(index);
    const place = later.findIndex((node) => isSame(node, child));
    if (place < 0) {
      parent.insertBefore(child, later[0] ?? null);
      return;
    }
    for (const gone of later.slice(0, place)) gone.remove();
    become(later[place], child);
  });
  while (parent.childNodes.length > children.length) parent.lastChild.remove();
}

const isSame = (node, other) => node.nodeName === other.nodeName && node.dataset?.name === other.dataset?.name;

function become(node, other) {
  if (node.nodeType === Node.TEXT_NODE) {
    if (node.nodeValue !== other.nodeValue) node.nodeValue = other.nodeValue;
    return;
  }
  for (const { name } of [...node.attributes]) if (!other.hasAttribute(name)) node.removeAttribute(name);
  for (const { name, value } of other.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  renew(node, [...other.childNodes]);
}

// Asks before what can't be undone; resolves to whether the answer was yes. Escape says no.
export function confirmed(question, yes) {
  const [no, doIt] = [element("button", { type: "button" }, "Cancel"), element("button", { type: "button", class: "danger" }, yes)];
  const dialog = element("dialog", { "aria-label": question }, element("p", {}, question), element("div", { class: "acts" }, no, doIt));
  no.addEventListener("click", () => dialog.close("no"));
  doIt.addEventListener("click", () => dialog.close("yes"));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}

export async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  return understood(answer);
}

export async function act(path, body = {}) {
  const answer = await fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  return understood(answer);
}

async function understood(answer) {
  const text = await answer.text();
  let content = {};
  try {
    content = JSON.parse(text);
  } catch {
    content = { error: text };
  }
  if (!answer.ok) throw new Error(content.error || `the console answered ${answer.status}`);
  return content;
}

// Calls now and then again, as long as the page is seen; one call at a time.
export function repeat(everyMs, work) {
  let isAtWork = false;
  const turn = async () => {
    if (isAtWork || document.hidden) return;
    isAtWork = true;
    await work();
    isAtWork = false;
  };
  setInterval(turn, everyMs);
  document.addEventListener("visibilitychange", turn);
  turn();
}
