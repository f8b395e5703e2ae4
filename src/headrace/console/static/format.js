// Numbers, times and durations as people read them.

const whole = new Intl.NumberFormat();
const tenth = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const fine = new Intl.NumberFormat(undefined, { maximumFractionDigits: 4 });
const money = new Intl.NumberFormat(undefined, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const DATE_MS_MAX = 8.64e15;

export const NONE = "–";

const known = (value) => value !== null && value !== undefined;

export const count = (value) => (known(value) ? whole.format(value) : NONE);
export const number = (value) => fine.format(value);
export const amount = (value) => (known(value) ? money.format(value) : NONE);

export function rate(value) {
  if (!known(value)) return NONE;
  return value > 0 && value < 10 ? tenth.format(value) : whole.format(Math.round(value));
}

export function milliseconds(value) {
  if (!known(value)) return NONE;
  if (value < 10_000) return `${whole.format(value)} ms`;
  return `${duration(value)}`;
}

export function duration(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${whole.format(Math.floor(s / 86_400))} d`;
}

const asDate = (ms) => (known(ms) && Math.abs(ms) <= DATE_MS_MAX ? new Date(ms) : null);

// The time of day, with the date before it when that was not today.
export function time(ms) {
  const date = asDate(ms);
  if (!date) return NONE;
  const today = new Date().toDateString() === date.toDateString();
  return today ? clock.format(date) : `${day.format(date)} ${clock.format(date)}`;
}

export const iso = (ms) => asDate(ms)?.toISOString() ?? "";

// 52.52° N 13.41° E
export function place([latitude, longitude]) {
  const north = `${Math.abs(latitude).toFixed(2)}° ${latitude < 0 ? "S" : "N"}`;
  return `${north} ${Math.abs(longitude).toFixed(2)}° ${longitude < 0 ? "W" : "E"}`;
}

export function bytes(value) {
  if (!known(value)) return NONE;
  if (value < 1024) return `${whole.format(value)} B`;
  if (value < 1024 ** 2) return `${tenth.format(value / 1024)} KiB`;
  return `${tenth.format(value / 1024 ** 2)} MiB`;
}
