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
