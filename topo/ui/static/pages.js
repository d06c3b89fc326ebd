// The pages of a topology, in the order of the tabs. A page is a module of its own, with a line here:
//
//   export default { name, title, isStill, View };
//
// `name` is its part of the address (/t/TOPOLOGY/name). `View({ name, item, live })` draws it: the topology, the rest of the address,
// and the newest snapshot of the live feed (null before the first), with `figures`, the last ones there were. A page without a title
// has no tab; one that `isStill` draws no figures of the feed.
import checkpoints from "./checkpoints.js";
import component from "./component.js";
import errors from "./errors.js";
import letters from "./letters.js";
import logs from "./logs.js";
import overview from "./overview.js";
import profile from "./profile.js";
import settings from "./settings.js";
import tap from "./tap.js";
import time from "./time.js";
import trace from "./trace.js";
import workers from "./workers.js";

export const PAGES = [overview, component, time, checkpoints, errors, letters, logs, tap, trace, profile, workers, settings];
