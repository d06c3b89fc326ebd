// Templates: htm over Preact. Values become text nodes; nothing here parses HTML.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);
