// Figures as people read them. A figure that is not known is a dash, never NaN.
const NONE = "–";
// One for all figures: to make one takes longer than to write a figure with it.
const GROUPED = new Intl.NumberFormat("en");
const known = (value) => typeof value === "number" && Number.isFinite(value);

/** A count: 9,800, 1.2M. */
export function count(value) {
  if (!known(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(1)}G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (size >= 1e5) return `${Math.round(value / 1e3)}k`;
  return GROUPED.format(Math.round(value));
}

/** A rate a second. */
export function rate(value) {
  if (!known(value)) return NONE;
  return value > 0 && value < 10 ? value.toFixed(1) : count(value);
}

/** Seconds with a unit. */
export function seconds(value) {
  if (!known(value)) return NONE;
  if (value === 0) return "0 s";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Number((value * 1e3).toPrecision(2))} ms`;
  if (value < 120) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} d`;
}

export const percent = (value) => (known(value) ? `${Math.round(value * 100)} %` : NONE);

export function bytes(value) {
  if (!known(value)) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let power = 0;
  while (value >= 1000 && power < 4) { value /= 1000; power += 1; }
  return `${power && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[power]}`;
}

const clocks = (timeZone) => [new Intl.DateTimeFormat("sv", { timeZone }), new Intl.DateTimeFormat("sv", { timeZone, timeStyle: "medium" })];
const LOCAL = clocks(), UTC = clocks("UTC");
let [days, times] = LOCAL;
export const setUtc = (value) => { [days, times] = value ? UTC : LOCAL; };

/** A moment (ms, or ISO text) as a time of day, with the date when it is another day. */
export function time(moment, withDate = true) {
  if (moment === null || moment === undefined || moment === "") return NONE;
  const date = new Date(moment);
  if (Number.isNaN(date.getTime())) return String(moment);
  const clock = times.format(date);
  if (!withDate) return clock;
  const day = days.format(date);
  return day === days.format(new Date()) ? clock : `${day} ${clock}`;
}

/** Any value as text. */
export function text(value) {
  if (value === null || value === undefined || value === "") return NONE;
  if (typeof value === "object") return JSON.stringify(value);
  return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(3))) : String(value);
}
