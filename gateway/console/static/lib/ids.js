/** Ids as people read them. */

/** Return the start and the end of an id. Ids of one minute have the same start. @param {string} id */
export const shortId = (id) => (id.length > 13 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id);
