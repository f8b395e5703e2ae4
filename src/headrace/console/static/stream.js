// The page's connection to the console: server-sent events, reconnected until the page closes.
//
// The browser reconnects by itself after a broken connection, and sends the id of the last event it got. It
// gives up after an answer that is not a stream (too many pages), so then a new stream is opened here, with
// that id in the address. A page that is hidden holds no connection: browsers allow few to one server.

const RETRY_MS = 2000;
const SILENCE_MS_MAX = 4000; // the console speaks once a second

export class Stream {
  #source = null;
  #lastEventId = "";
  #heardAt = performance.now();
  #retry = 0;
  #trouble = "";
  #on;

  // `on` has three functions: stats(object), alert(object), and connection({lost, silentMs, trouble}).
  constructor(on) {
    this.#on = on;
    document.addEventListener("visibilitychange", () => this.#onVisibility());
    setInterval(() => this.#report(), 500);
    this.#open();
  }

  #open() {
    this.#close();
    const address = this.#lastEventId ? `/events?last_event_id=${encodeURIComponent(this.#lastEventId)}` : "/events";
    const source = new EventSource(address);
    source.addEventListener("stats", (event) => this.#hear(() => this.#on.stats(JSON.parse(event.data))));
    source.addEventListener("alert", (event) => {
      this.#lastEventId = event.lastEventId;
      this.#hear(() => this.#on.alert(JSON.parse(event.data)));
    });
    source.addEventListener("error", () => this.#onError(source));
    this.#source = source;
  }

  #close() {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
  }

  #hear(act) {
    this.#heardAt = performance.now();
    this.#trouble = "";
    act();
    this.#report();
  }

  async #onError(source) {
    if (source !== this.#source || source.readyState !== EventSource.CLOSED) return;
    this.#retry = setTimeout(() => this.#open(), RETRY_MS);
    const answer = await fetch("/events", { method: "HEAD" }).catch(() => null);
    this.#trouble = answer?.status === 503 ? "too many pages are open; close one" : "";
  }

  #onVisibility() {
    if (document.hidden) this.#close();
    else if (!this.#source) this.#open();
  }

  #report() {
    const silentMs = performance.now() - this.#heardAt;
    this.#on.connection({ lost: silentMs > SILENCE_MS_MAX, silentMs, trouble: this.#trouble });
  }
}
